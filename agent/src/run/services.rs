//! Services that run beside the instances for as long as the agent does: the servers, the log of certificates that expire, and the
//! reports to a cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::addresses::host as host_addresses;
use super::cluster::{Clients, Reporter};
use super::directories::Directories;
use super::engine::Known;
use super::observed::{AllObserved, newest};
use super::report::compose::{self, Facts};
use super::report::{AgentReport, Report, expiry, health};
use super::server::{self, CommandQueues};
use super::{AGENT_SOCKET, RunOptions, Source};
use crate::envoy::restart;

/// The newest values that services answer from.
pub(super) struct Inputs {
    pub(super) known: watch::Receiver<Known>,
    pub(super) observed: watch::Receiver<AllObserved>,
    pub(super) queues: watch::Receiver<CommandQueues>,
    /// True once the agent was told to stop.
    pub(super) stopping: Arc<AtomicBool>,
    /// Takes requests to end the agent together with its Envoys, with the time that connections have.
    pub(super) stops: mpsc::Sender<Duration>,
    /// Ways to the API server, where the source is a cluster.
    pub(super) clients: Option<Clients>,
}

/// Services that have been started.
pub(super) struct Services {
    tasks: JoinSet<()>,
    report: Arc<dyn Fn(bool) -> Report + Send + Sync>,
    socket: PathBuf,
    reporter: Option<Reporter>,
}

impl Services {
    /// Starts all of them; fails if an address or the socket cannot be listened on.
    pub(super) async fn start(
        options: &RunOptions,
        directories: &Directories,
        inputs: Inputs,
    ) -> anyhow::Result<Self> {
        let Inputs {
            known,
            observed,
            queues,
            stopping,
            stops,
            clients,
        } = inputs;
        let mut tasks = JoinSet::new();
        let socket = directories.runtime().join(AGENT_SOCKET);
        let listener = server::bind(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let report = reports(options, known.clone(), observed.clone(), stopping);
        let report = Arc::new(report);
        if let Some(address) = options.health_address {
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("--health-address {address}: cannot listen"))?;
            tasks.spawn(health::serve(listener, Arc::clone(&report)));
        }
        let state_dir = directories.state().to_owned();
        let serving = Arc::clone(&report);
        tasks.spawn(server::serve(listener, serving, state_dir, queues, stops));
        tasks.spawn(expiry::log(observed.clone()));
        let reporter = match (&options.source, clients) {
            (Source::Cluster(settings), Some(clients)) => {
                let addresses = host_addresses::usable(&options.report_addresses);
                Some(Reporter::start(
                    settings, &addresses, clients, known, observed,
                ))
            }
            _ => None,
        };
        Ok(Self {
            tasks,
            report,
            socket,
            reporter,
        })
    }

    /// Returns the newest report, without the objects.
    pub(super) fn report(&self) -> Report {
        (self.report)(false)
    }

    /// Ends all of them, after a last report to the cluster.
    pub(super) async fn stop(mut self) {
        if let Some(reporter) = self.reporter {
            reporter.finish().await;
        }
        self.tasks.abort_all();
        // A socket that nobody answers only misleads.
        let _ = std::fs::remove_file(self.socket);
    }
}

/// Returns a function that makes a report of the newest values, with the statuses of all objects if it is told so.
fn reports(
    options: &RunOptions,
    known: watch::Receiver<Known>,
    observed: watch::Receiver<AllObserved>,
    stopping: Arc<AtomicBool>,
) -> impl Fn(bool) -> Report + Send + Sync + 'static {
    let agent = AgentReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started: Timestamp::now(),
        stopping: false,
    };
    let source = options.source.report();
    let resolve = options.resolve.clone();
    let host_addresses: Vec<String> = host_addresses::usable(&options.report_addresses)
        .iter()
        .map(IpAddr::to_string)
        .collect();
    move |with_objects| {
        // Copied out, so that a slow caller holds nothing up.
        let known = known.borrow().clone();
        let observed: BTreeMap<_, _> = newest(&observed);
        compose::report(
            &Facts {
                agent: AgentReport {
                    stopping: stopping.load(Ordering::Relaxed),
                    ..agent.clone()
                },
                source: source.clone(),
                transitions: &known.transitions,
                known: &known,
                resolve: &resolve,
                observed: &observed,
                host_addresses: &host_addresses,
                moves_connections: restart::moves_connections(),
                now: Timestamp::now(),
            },
            with_objects,
        )
    }
}
