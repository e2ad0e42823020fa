//! Runs services alongside the instances.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use sesame_http_server::guard::Guard;
use sesame_spans::Spans;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::addresses::host as host_addresses;
use super::certificates::CertificatesSource;
use super::cluster::{Clients, Reporter, start_reporter};
use super::directories::Directories;
use super::engine::SourceState;
use super::events::{self, Recorder};
use super::metrics::{self, MetricsSource, PageSource};
use super::observed::{AllObserved, newest};
use super::page::{self, PageFacts};
use super::reload::{LiveSettings, ReloadRequest};
use super::report::compose::{self, ReportFacts};
use super::report::{AgentReport, Report, ReportSource, expiry, health};
use super::server::{self, CommandQueues};
use super::{AGENT_SOCKET, MetricsOptions, RunOptions, Source};
use sesame_envoy::restart;
use sesame_host::is_in_memory;
use sesame_host::reserve::InotifyReserve;
use sesame_sources::seal::SealingKeys;

pub(super) struct ServiceInputs {
    pub(super) known: watch::Receiver<SourceState>,
    pub(super) observed: watch::Receiver<AllObserved>,
    pub(super) queues: watch::Receiver<CommandQueues>,
    pub(super) stopping: Arc<AtomicBool>,
    /// Stop requests, each with the maximum time for connections to finish.
    pub(super) stops: mpsc::Sender<Duration>,
    pub(super) reloads: mpsc::Sender<ReloadRequest>,
    pub(super) live: watch::Receiver<LiveSettings>,
    pub(super) sealing: Arc<SealingKeys>,
    /// Set if the source is a cluster.
    pub(super) clients: Option<Clients>,
    pub(super) spans: Spans,
    pub(super) reserve: InotifyReserve,
}

pub(super) struct Services {
    tasks: JoinSet<()>,
    report: ReportSource,
    socket: PathBuf,
    reporter: Option<Reporter>,
}

const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Retries, because two agents on one node may be configured with the same port by mistake.
async fn metrics_listener(address: SocketAddr) -> TcpListener {
    loop {
        let error = match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) => error,
        };
        // The node may not support IPv6.
        if address.ip() == Ipv6Addr::UNSPECIFIED
            && let Ok(listener) = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        {
            return listener;
        }
        tracing::error!(%error, "cannot serve metrics at --metrics-address {address}; retrying");
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

fn guard_of_metrics(address: SocketAddr, options: &MetricsOptions) -> anyhow::Result<Guard> {
    let guard = Guard::new(options.guard.clone());
    guard.with_context(|| format!("--metrics-address {address}: cannot set up access control"))
}

async fn serve_metrics(
    address: SocketAddr,
    guard: Guard,
    metrics: MetricsSource,
    page: PageSource,
) {
    let listener = metrics_listener(address).await;
    metrics::serve(listener, guard, metrics, page).await;
}

fn bound(directories: &Directories) -> anyhow::Result<(PathBuf, UnixListener)> {
    let socket = directories.runtime().join(AGENT_SOCKET);
    let listener =
        server::bind(&socket).with_context(|| format!("cannot listen on {}", socket.display()))?;
    Ok((socket, listener))
}

async fn unguarded(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("--health-address {address}: cannot listen"))
}

impl Services {
    pub(super) async fn start(
        options: &RunOptions,
        directories: &Directories,
        inputs: ServiceInputs,
    ) -> anyhow::Result<Self> {
        let ServiceInputs {
            known,
            observed,
            queues,
            stopping,
            stops,
            reloads,
            live,
            sealing,
            clients,
            spans,
            reserve,
        } = inputs;
        let mut tasks = JoinSet::new();
        let (socket, listener) = bound(directories)?;
        let report = reports(
            options,
            known.clone(),
            observed.clone(),
            stopping,
            live.clone(),
            (sealing, reserve.clone()),
            hint_on_disk(directories),
        );
        if let Some(address) = options.health_address {
            let listener = unguarded(address).await?;
            tasks.spawn(health::serve(listener, Arc::clone(&report)));
        }
        let most_backends = options.metrics.most_backends;
        let metrics = MetricsSource::new(&report, &observed, most_backends, reserve);
        if let Some(address) = options.metrics.address {
            let guard = guard_of_metrics(address, &options.metrics)?;
            let page = pages(directories, &report, &known, &observed);
            tasks.spawn(serve_metrics(address, guard, metrics.clone(), page));
        }
        let inputs = server::ServerInputs {
            queues,
            stops,
            reloads,
            live: live.clone(),
            metrics,
            certificates: CertificatesSource::new(&known, &observed),
        };
        let state_dir = directories.state().to_owned();
        tasks.spawn(server::serve(listener, report.clone(), state_dir, inputs));
        tasks.spawn(expiry::log(observed.clone()));
        tasks.spawn(recorder(directories, &report, &known, &observed).run());
        let reporter = clients.and_then(|clients| match &options.source {
            Source::Cluster(settings) => Some(start_reporter(
                settings, live, clients, known, observed, spans,
            )),
            _ => None,
        });
        Ok(Self {
            tasks,
            report,
            socket,
            reporter,
        })
    }

    /// The report omits the objects.
    pub(super) fn report(&self) -> Report {
        (self.report)(false)
    }

    /// Sends a final report to the cluster first.
    pub(super) async fn stop(mut self) {
        if let Some(reporter) = self.reporter {
            reporter.finish().await;
        }
        self.tasks.abort_all();
        // Nothing serves the socket any more, so remove it.
        let _ = std::fs::remove_file(self.socket);
    }
}

fn recorder(
    directories: &Directories,
    report: &ReportSource,
    known: &watch::Receiver<SourceState>,
    observed: &watch::Receiver<AllObserved>,
) -> Recorder {
    Recorder::new(
        directories.state(),
        Arc::clone(report),
        known.clone(),
        observed.clone(),
    )
}

fn pages(
    directories: &Directories,
    report: &ReportSource,
    known: &watch::Receiver<SourceState>,
    observed: &watch::Receiver<AllObserved>,
) -> PageSource {
    let (state_dir, report) = (directories.state().to_owned(), Arc::clone(report));
    let certificates = CertificatesSource::new(known, observed);
    Arc::new(move || {
        page::page(&PageFacts {
            report: &report(true),
            certificates: &certificates.list_without_query(),
            // The error is already logged.
            events: &events::list(&state_dir).unwrap_or_default(),
            now: Timestamp::now(),
        })
    })
}

/// Returns a hint if the runtime directory is on a disk.
fn hint_on_disk(directories: &Directories) -> Vec<String> {
    let runtime = directories.runtime();
    let hint = (!is_in_memory(runtime)).then(|| {
        format!(
            "the runtime directory {} is on a disk, so private keys for Envoy are stored there in plaintext; set --runtime-dir to a directory below /run",
            runtime.display()
        )
    });
    hint.into_iter().collect()
}

fn reports(
    options: &RunOptions,
    known: watch::Receiver<SourceState>,
    observed: watch::Receiver<AllObserved>,
    stopping: Arc<AtomicBool>,
    live: watch::Receiver<LiveSettings>,
    (sealing, reserve): (Arc<SealingKeys>, InotifyReserve),
    on_disk: Vec<String>,
) -> ReportSource {
    let agent = AgentReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started: Timestamp::now(),
        stopping: false,
        keys_at_rest: sealing.place().to_owned(),
    };
    let source = options.source.report();
    let resolve = options.resolve.clone();
    let reported = |addresses: &[IpAddr]| -> Vec<String> {
        let usable = host_addresses::usable(addresses).into_iter();
        usable.map(|ip| ip.to_string()).collect()
    };
    let configured = options.report_addresses.clone();
    let host_addresses = reported(&configured);
    Arc::new(move |with_objects| {
        let live = live.borrow().clone();
        let changed =
            (live.report_addresses != configured).then(|| reported(&live.report_addresses));
        // Do not block the sender while the report is built.
        let known = known.borrow().clone();
        let observed: BTreeMap<_, _> = newest(&observed);
        compose::report(
            &ReportFacts {
                agent: AgentReport {
                    stopping: stopping.load(Ordering::Relaxed),
                    ..agent.clone()
                },
                source: source.clone(),
                known: &known,
                resolve: &resolve,
                observed: &observed,
                host_addresses: changed.as_ref().unwrap_or(&host_addresses),
                hints: [live.hints(), on_disk.clone()].concat(),
                warnings: live
                    .warnings()
                    .into_iter()
                    .chain(sealing.problems().to_vec())
                    .chain(reserve.level().shortage())
                    .collect(),
                moves_connections: restart::moves_connections(),
                now: Timestamp::now(),
            },
            with_objects,
        )
    })
}
