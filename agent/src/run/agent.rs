//! The conductor: starts everything, keeps one instance for each Gateway, stops everything.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use jiff::Timestamp;
use sesame_gateway_api::api::NamespacedName;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::addresses::{host as host_addresses, overlap};
#[cfg(feature = "cluster")]
use super::cluster::Reporter;
use super::commands::QueuedCommand;
use super::directories::Directories;
use super::engine::Known;
use super::instance::Instance;
use super::observed::Observed;
use super::report::compose::{self, Facts};
use super::report::{AgentReport, expiry, health};
use super::server::CommandQueues;
use super::shutdown::{self, Ending};
use super::source::Inputs;
#[cfg(feature = "cluster")]
use super::source::Source;
use super::target::{HostSettings, Target};
use super::withdrawal::Withdrawal;
use super::{AGENT_SOCKET, RunOptions, accepted, server, system_ca};
use crate::apply::budget::Budget;
use crate::apply::lock::Lock;
use crate::envoy::{self, Supervisor, SupervisorConfig, restart};
use crate::host_limits;
use sesame_render::limits::{self, Limits};

/// What is under way when the agent leaves may take this long; a restart of Envoy can take a minute.
const LEAVING: Duration = Duration::from_secs(5);

/// One Gateway's task, and the channels to and from it. What it is to serve it hears from the engine.
struct Running {
    observed: watch::Receiver<Observed>,
    orders: mpsc::Sender<QueuedCommand>,
    stop: watch::Sender<Option<Ending>>,
    task: JoinHandle<()>,
    /// Where it listens.
    addresses: Vec<IpAddr>,
}

/// Runs until a signal or a request says to stop.
pub(super) async fn run(options: RunOptions) -> anyhow::Result<()> {
    let directories = Directories::create(&options.state_dir, &options.runtime_dir)?;
    let _state_lock = Lock::acquire(directories.state())?;
    let _runtime_lock = Lock::acquire(directories.runtime())?;
    let binary = envoy::locate::locate(options.envoy.as_deref())?;
    let version = envoy::locate::version(&binary).await?;
    tracing::info!(envoy = %binary.display(), %version, "starting");

    let (accepted, held) = accepted::load_all(&directories);
    let host = HostSettings {
        pool: if options.addresses.is_empty() {
            host_addresses::all()
        } else {
            options.addresses.clone()
        },
        port_map: options.port_map.clone(),
        subscription_budget: Budget::read(&directories.envoy_pids()).subscriptions(2),
        limits: limits_of_host(options.heap)?,
        budget_each: options.subscription_budget,
        trusted_hops: options.trusted_hops,
        system_ca: system_ca::find(),
        allow_local_endpoints: options.resolve.allow_local_endpoints,
        health_address: options.health_address,
        interfaces: host_addresses::every,
        held,
        directories: directories.clone(),
    };
    let (known_sender, mut known) = watch::channel(Known::default());
    let (released, accepts) = watch::channel(0);
    let patience = (options.most_removed < 100).then_some(options.hold);
    let started = options.source.start(Inputs {
        resolve: options.resolve.clone(),
        limits: options.limits,
        host,
        known: known_sender,
        accepted,
        withdrawal: Withdrawal::new(patience, accepts),
    })?;

    let socket = directories.runtime().join(AGENT_SOCKET);
    let listener =
        server::bind(&socket).with_context(|| format!("cannot listen on {}", socket.display()))?;
    let (seen_sender, all_seen) =
        watch::channel(BTreeMap::<NamespacedName, watch::Receiver<Observed>>::new());
    let (desks_sender, desks) = watch::channel(CommandQueues::new());
    let stopping = Arc::new(AtomicBool::new(false));
    let report = reporter(
        &options,
        known.clone(),
        all_seen.clone(),
        Arc::clone(&stopping),
    );
    let report = Arc::new(report);
    let health = match options.health_address {
        Some(address) => {
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("--health-address {address}: cannot listen"))?;
            Some(tokio::spawn(health::serve(listener, Arc::clone(&report))))
        }
        None => None,
    };
    let (ask_to_end, mut asked_to_end) = mpsc::channel(1);
    let state_dir = directories.state().to_owned();
    let status = server::serve(listener, report, state_dir, desks, ask_to_end);
    let status = tokio::spawn(status);
    let expiry = tokio::spawn(expiry::log(all_seen.clone()));
    #[cfg(not(feature = "cluster"))]
    let super::source::Started {} = started;
    #[cfg(feature = "cluster")]
    let reporter = match (&options.source, started.clients) {
        (Source::Cluster(settings), Some(clients)) => Some(Reporter::start(
            settings.clone(),
            &host_addresses::usable(&options.report_addresses),
            clients,
            known.clone(),
            all_seen,
        )),
        _ => None,
    };

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut running: BTreeMap<NamespacedName, Running> = BTreeMap::new();
    let news = known.clone();
    let launcher = shutdown::launcher(&options, directories.runtime());
    let start = |name: &NamespacedName, wanted: &Arc<Target>| {
        let (known, first) = (news.clone(), Arc::clone(wanted));
        let (stop_sender, stop) = watch::channel(None);
        let (orders_sender, orders) = mpsc::channel(1);
        let (seen_sender, observed) = watch::channel(Observed::default());
        let instance = Instance {
            gateway: name.clone(),
            directories: directories.gateway(name),
            binary: binary.clone(),
            version: version.to_string(),
            concurrency: options.concurrency,
            drain: options.drain,
            takeover: options.takeover,
            launcher: launcher.clone(),
            most_removed: options.most_removed,
            hold: options.hold,
            released: released.clone(),
            observed: seen_sender,
        };
        Running {
            observed,
            orders: orders_sender,
            stop: stop_sender,
            task: tokio::spawn(instance.run(known, first, orders, stop)),
            addresses: wanted.assignment.addresses.clone(),
        }
    };
    // Gateways that were withdrawn and whose Envoys drain, with the addresses where those still listen.
    let mut ending: BTreeMap<NamespacedName, Vec<IpAddr>> = BTreeMap::new();
    let mut ends: JoinSet<(NamespacedName, bool)> = JoinSet::new();
    let drain = options.drain;
    for (name, addresses) in accepted::withdrawn(&directories) {
        ending.insert(name.clone(), addresses);
        let left = directories.gateway(&name);
        let (socket, none) = (left.admin_socket(), Bytes::new());
        let config = SupervisorConfig::new(&binary, &left.runtime, socket, none);
        ends.spawn(end_leftover(name, config, options.drain));
    }
    let ending = loop {
        let wanted = known.borrow_and_update().gateways.clone();
        for (name, wanted) in &wanted {
            let addresses = &wanted.assignment.addresses;
            // Two Envoys at one address would share its connections out between them.
            let waits =
                ending.contains_key(name) || ending.values().any(|held| overlap(held, addresses));
            match running.get_mut(name) {
                Some(running) => running.addresses.clone_from(addresses),
                None if waits => {}
                None => {
                    accepted::take_back(&directories, name);
                    running.insert(name.clone(), start(name, wanted));
                }
            }
        }
        let gone: Vec<NamespacedName> = running
            .keys()
            .filter(|name| !wanted.contains_key(*name))
            .cloned()
            .collect();
        drop(wanted);
        for name in gone {
            if let Some(instance) = running.remove(&name) {
                accepted::withdraw(&directories, &name);
                ending.insert(name.clone(), instance.addresses.clone());
                ends.spawn(async move {
                    let well = stop_one(&name, instance, Ending::Drain(drain)).await;
                    (name, well)
                });
            }
        }
        seen_sender.send_replace(
            running
                .iter()
                .map(|(name, running)| (name.clone(), running.observed.clone()))
                .collect(),
        );
        desks_sender.send_replace(
            running
                .iter()
                .map(|(name, running)| (name.to_string(), running.orders.clone()))
                .collect(),
        );
        tokio::select! {
            changed = known.changed() => {
                if changed.is_err() {
                    anyhow::bail!("the engine has ended; this is a bug, please report it with the log");
                }
            }
            Some(Ok((name, well))) = ends.join_next() => {
                ending.remove(&name);
                accepted::forget(&directories, &name);
                if well {
                    directories.forget_runtime(&name);
                }
            }
            Some(grace) = asked_to_end.recv() => break Ending::Drain(grace),
            _ = terminate.recv() => break shutdown::signalled(&options, &launcher, &stopping).await,
            _ = interrupt.recv() => break shutdown::signalled(&options, &launcher, &stopping).await,
        }
    };
    match ending {
        Ending::Leave => tracing::info!("stopping; Envoy serves on"),
        Ending::Drain(grace) => {
            stopping.store(true, Ordering::Relaxed);
            tracing::info!("stopping, and Envoy with it; connections have up to {grace:?}");
        }
    }
    let stops = running.into_iter().map(|(name, instance)| async move {
        stop_one(&name, instance, ending).await;
    });
    futures::future::join_all(stops).await;
    // Those that nobody wants any more are observed off by the next agent otherwise.
    while ending != Ending::Leave
        && let Some(ended) = ends.join_next().await
    {
        if let Ok((name, _)) = ended {
            accepted::forget(&directories, &name);
        }
    }
    #[cfg(feature = "cluster")]
    if let Some(reporter) = reporter {
        reporter.finish().await;
    }
    status.abort();
    expiry.abort();
    if let Some(health) = health {
        health.abort();
    }
    // A socket that nobody answers only misleads.
    let _ = std::fs::remove_file(socket);
    Ok(())
}

/// Returns when its Envoy has ended, or was left; false if that is not sure.
async fn stop_one(name: &NamespacedName, mut instance: Running, ending: Ending) -> bool {
    instance.stop.send_replace(Some(ending));
    let ended = match ending {
        Ending::Drain(_) => (&mut instance.task).await,
        Ending::Leave => {
            let Ok(ended) = timeout(LEAVING, &mut instance.task).await else {
                // Whatever it is about, the next agent goes on with it, as after any other death of this one.
                instance.task.abort();
                return false;
            };
            ended
        }
    };
    if let Err(error) = ended {
        tracing::error!(gateway = %name, %error, "the Gateway's task has failed");
        return false;
    }
    true
}

/// The same of the Envoy that the agent before had not ended yet.
async fn end_leftover(
    name: NamespacedName,
    config: SupervisorConfig,
    drain: Duration,
) -> (NamespacedName, bool) {
    let ended = Supervisor::end_running(&config, drain).await;
    if let Err(error) = &ended {
        tracing::error!(gateway = %name, %error, "the Gateway was withdrawn, but its Envoy cannot be found");
    }
    (name, ended.is_ok())
}

/// Makes reports from the newest values.
fn reporter(
    options: &RunOptions,
    known: watch::Receiver<Known>,
    observed: watch::Receiver<BTreeMap<NamespacedName, watch::Receiver<Observed>>>,
    stopping: Arc<AtomicBool>,
) -> impl Fn(bool) -> super::report::Report + Send + Sync + 'static {
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
        let observed: BTreeMap<NamespacedName, Observed> = observed
            .borrow()
            .iter()
            .map(|(name, observed)| (name.clone(), observed.borrow().clone()))
            .collect();
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

/// What each Envoy may use: what this process may have, and so much heap if told.
fn limits_of_host(heap: Option<u64>) -> Result<Limits, limits::TooFewFiles> {
    let heap = heap.unwrap_or_else(|| limits::heap_of(host_limits::memory()));
    let limits = Limits::new(host_limits::open_files(), heap)?;
    tracing::info!(?limits, "each Envoy is limited");
    Ok(limits)
}
