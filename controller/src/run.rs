//! Runs the controller's process: starts all of its parts, and ends them.
//!
//! The engine has a thread of its own; everything else is tasks that hand each other values over channels. Every replica
//! does all but write.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::connection::ClusterConnection;
use crate::engine::{Engine, Mode};
use crate::finalizer::Finalizer;
use crate::fleet_roles::FleetRoles;
use crate::lead::Elector;
use crate::provision::Provisioner;
use crate::publish::{DesiredPublications, Signing, SnapshotPublisher};
use crate::replica::Replica;
use crate::report::{AllPresences, Events, Expiring, StatusReporter};
use crate::serve::{self, Metrics};
use crate::statuses::{GatewayProblems, StatusChange};
use crate::watch::References;
use crate::watch::fetch::Fetcher;
use crate::watch::kinds::Watches;
use sesame_gateway_api::api::Network;
use sesame_gateway_api::resolve::Options;

/// Settings of the process.
#[derive(Clone)]
pub(crate) struct ProcessSettings {
    pub(crate) options: Options,
    pub(crate) namespace: String,
    pub(crate) mode: Mode,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) signing: Signing,
    pub(crate) listen: SocketAddr,
    pub(crate) lease_duration: Duration,
    pub(crate) gateway_services: bool,
    pub(crate) host_addresses: Vec<Network>,
    pub(crate) host_lost: Duration,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(settings: &ProcessSettings, revision: &'static str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let outcome = runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        while controller(settings.clone(), revision, &mut stop).await? == End::Outdated {}
        Ok(())
    });
    // The engine's thread may be in the middle of a resolution, whose outcome nobody waits for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

/// Reason for ending everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The process was told to stop.
    Told,
    /// Address or credentials of the API server have changed: everything begins anew.
    Outdated,
}

/// The signals that tell the process to stop.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("wait for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("wait for SIGINT")?,
        })
    }

    async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn controller(
    settings: ProcessSettings,
    revision: &'static str,
    stop: &mut StopSignals,
) -> Result<End> {
    let connection = ClusterConnection::open(settings.kubeconfig.clone()).await?;
    let listen = settings.listen;
    let listener = serve::bind(listen)
        .await
        .with_context(|| format!("--listen {listen}"))?;
    let (leading, is_leading) = watch::channel(false);
    let (step_down, mut stopping) = watch::channel(false);
    let replica = Replica {
        client: connection.client.clone(),
        namespace: settings.namespace.clone(),
        controller_name: settings.options.controller_name.clone(),
        identity: identity(),
        leading: is_leading,
        metrics: Arc::new(Metrics::new()),
    };
    replica.metrics.built_from(revision);
    let elector = Elector {
        replica: replica.clone(),
        duration: settings.lease_duration,
        leading,
    };
    let mut tasks = JoinSet::new();
    let resolved = start_resolution(&replica, &settings, &mut tasks)?;
    let ready = resolved.publications.clone();
    let metrics = Arc::clone(&replica.metrics);
    tasks.spawn(serve::serve(listener, metrics, move || {
        ready.borrow().is_some()
    }));
    start_writers(&replica, settings, resolved, &mut tasks);
    let election = elector.run(async move {
        // An error means that the sender is gone, which is an end too.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    });
    let mut election = std::pin::pin!(election);
    let end = tokio::select! {
        () = &mut election => anyhow::bail!("the election ended by itself"),
        Some(ended) = tasks.join_next() => {
            ended.context("a task failed")?;
            anyhow::bail!("a task ended by itself");
        }
        () = stop.told() => End::Told,
        () = connection.outdated() => End::Outdated,
    };
    tracing::info!(
        "{}",
        match end {
            End::Told => "told to stop",
            End::Outdated =>
                "the address or the credentials of the API server may have changed; starting over",
        }
    );
    let _ = step_down.send(true);
    election.await;
    // The address has to be free again.
    tasks.shutdown().await;
    Ok(end)
}

/// Channels over which the engine hands its outcomes to the writers.
struct Outcomes {
    publications: watch::Receiver<Option<Arc<DesiredPublications>>>,
    statuses: mpsc::UnboundedReceiver<StatusChange>,
}

/// Starts the watches and the engine.
fn start_resolution(
    replica: &Replica,
    settings: &ProcessSettings,
    tasks: &mut JoinSet<()>,
) -> Result<Outcomes> {
    let (inputs, engine_inputs) = std::sync::mpsc::channel();
    let (touch, touched) = mpsc::unbounded_channel();
    let (references, wanted) = watch::channel(References::default());
    let (desired, publications) = watch::channel(None);
    let (changes, statuses) = mpsc::unbounded_channel();
    let engine = Engine {
        inputs: engine_inputs,
        options: settings.options.clone(),
        mode: settings.mode,
        references,
        desired,
        statuses: changes,
        metrics: Arc::clone(&replica.metrics),
    };
    std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || engine.run())
        .context("start the engine's thread")?;
    let watches = Watches {
        replica: replica.clone(),
        inputs: inputs.clone(),
        touched: touch,
    };
    watches.spawn(tasks);
    let fetcher = Fetcher {
        replica: replica.clone(),
        references: wanted,
        touched,
        inputs,
    };
    tasks.spawn(fetcher.run());
    Ok(Outcomes {
        publications,
        statuses,
    })
}

/// Starts everything that writes to the cluster while this replica leads.
fn start_writers(
    replica: &Replica,
    settings: ProcessSettings,
    outcomes: Outcomes,
    tasks: &mut JoinSet<()>,
) {
    let Outcomes {
        publications,
        statuses,
    } = outcomes;
    let (without_service, services_missing) = watch::channel(GatewayProblems::new());
    let (failures, failed) = watch::channel(GatewayProblems::new());
    let (expiring, expires) = watch::channel(Expiring::new());
    let (presences, followed) = watch::channel(AllPresences::new());
    if settings.gateway_services {
        let provisioner = Provisioner {
            replica: replica.clone(),
            desired: publications.clone(),
            without_service,
        };
        tasks.spawn(provisioner.run());
    }
    let replica = || replica.clone();
    tasks.spawn(Finalizer { replica: replica() }.run());
    let fleet_roles = FleetRoles {
        replica: replica(),
        desired: publications.clone(),
    };
    tasks.spawn(fleet_roles.run());
    let publisher = SnapshotPublisher {
        replica: replica(),
        desired: publications,
        failures,
        signing: settings.signing,
    };
    tasks.spawn(publisher.run());
    let events = Events {
        replica: replica(),
        expiring: expires,
        presences: followed,
        host_lost: settings.host_lost,
    };
    tasks.spawn(events.run());
    let reporter = StatusReporter {
        replica: replica(),
        host_addresses: settings.host_addresses,
        host_lost: settings.host_lost,
        changes: statuses,
        failures: failed,
        without_service: services_missing,
        expiring,
        presences,
    };
    tasks.spawn(reporter.run());
}

/// Returns the name of this replica, which is unique even after a restart with the same host name and process id.
fn identity() -> String {
    let name = std::env::var("POD_NAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"))
        .unwrap_or_else(|_| "unknown".to_owned());
    let started = jiff::Timestamp::now().as_microsecond();
    format!("{}_{}_{started:x}", name.trim(), std::process::id())
}
