//! Runs the controller's process. Every replica runs all parts, but only the leader writes.

mod addresses;
mod configuration;
mod probes;
mod publishing;
mod stop_signals;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::addresses::Addresses;
pub(crate) use self::addresses::MetricsAddress;
use self::configuration::{follow_configuration, notify_engine};
use self::probes::{Progress, spawn_servers};
use self::publishing::Publishing;
use self::stop_signals::StopSignals;
use crate::acme::start_orders;
use crate::changes::Changes;
use crate::configuration::{ConfigurationSource, ControllerSettings, CurrentSettings};
use crate::connection::ClusterConnection;
use crate::engine::Engine;
use crate::finalizer::Finalizer;
use crate::key_sets::keep_key_sets;
use crate::lead::{Elector, identity};
use crate::ocg_bundles::OcgBundleWriter;
use crate::provision::Provisioner;
use crate::publish::{RolloutHosts, RolloutNotes, Signing};
use crate::replica::{Replica, WatchedLayers, WatchedNamespaces};
use crate::report::{AllPresences, CertificateWarnings, Events, MAX_UNREPORTED, StatusReporter};
use crate::salt_key;
use crate::serve::{Metrics, PageAsk};
use crate::statuses::{
    AddressesByGateway, GatewayProblems, HostsByGateway, ProvisionReport, ServiceRequests,
    SettingsByGateway, StatusChange,
};
use crate::watch::definitions::DefinitionReader;
use crate::watch::fetch::Fetcher;
use crate::watch::kinds::{AwaitedKinds, Watches};
use crate::watch::pods::KnownXBackends;
use crate::watch::{Input, References};
use sesame_acme_client::AcmeState;
use sesame_kinds::api::SesameConfigurationSpec;
use sesame_resolver::OcgBundles;
use sesame_spans::CollectorSettings;

#[derive(Clone)]
pub(crate) struct ProcessSettings {
    pub(crate) source: ConfigurationSource,
    pub(crate) flags: SesameConfigurationSpec,
    /// Memory limit for all Gateways' routes, in MiB.
    pub(crate) memory_mib: u64,
    pub(crate) namespace: String,
    pub(crate) watched: WatchedNamespaces,
    pub(crate) layers: WatchedLayers,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) signing: Signing,
    pub(crate) acme_dns_hook: Option<PathBuf>,
    pub(crate) listen: SocketAddr,
    /// If `None`, the probe address also serves the metrics.
    pub(crate) metrics: Option<MetricsAddress>,
    pub(crate) lease_duration: Duration,
    /// `None` disables spans.
    pub(crate) spans: Option<CollectorSettings>,
}

pub(crate) fn run(settings: &ProcessSettings, revision: &'static str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        let addresses = Addresses::new(settings.listen, settings.metrics.as_ref())?;
        loop {
            let run = controller(settings.clone(), revision, &addresses, &mut stop);
            if Box::pin(run).await? == End::Stopped {
                return Ok(());
            }
        }
    });
    // Do not wait for the engine's thread, which might still be resolving.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stopped,
    /// The API server's address or the credentials changed.
    Outdated,
    /// The controller's name or the watched kinds changed.
    Renamed,
}

#[expect(
    clippy::too_many_lines,
    reason = "tasks start in this order, stop in reverse order, and may fail in between"
)]
async fn controller(
    process: ProcessSettings,
    revision: &'static str,
    addresses: &Addresses,
    stop: &mut StopSignals,
) -> Result<End> {
    let connection = ClusterConnection::open(process.kubeconfig.clone()).await?;
    let open = addresses.open().await?;
    let (leading, is_leading) = watch::channel(false);
    let (step_down, mut stopping) = watch::channel(false);
    let identity = identity();
    let mut replica = Replica {
        client: connection.client.clone(),
        namespace: process.namespace.clone(),
        watched: process.watched.clone(),
        layers: process.layers,
        controller_name: String::new(),
        changes: Changes::follow(process.spans.clone(), &identity, is_leading.clone())?,
        fleet_spans: process
            .spans
            .as_ref()
            .and_then(CollectorSettings::bare_endpoint),
        acme_dns_hook: process.acme_dns_hook.clone(),
        identity,
        leading: is_leading,
        metrics: Arc::new(Metrics::new()),
        failures: Arc::default(),
    };
    replica.metrics.built_from(revision);
    if let WatchedNamespaces::Only(names) = &replica.watched {
        tracing::info!(?names, "watching only these namespaces");
    }
    let elector = Elector {
        replica: replica.clone(),
        duration: process.lease_duration,
        leading,
    };
    let mut tasks = JoinSet::new();
    let mut current = follow_configuration(&replica, &process, &mut tasks);
    let (readiness, ready) = watch::channel(None);
    let mut asked = spawn_servers(open, &replica, current.clone(), ready, &mut tasks);
    let election = elector.run(async move {
        // A dropped sender also ends the election.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    });
    let mut election = std::pin::pin!(election);
    let (mut obtaining, mut salt_key) = (Box::pin(salt_key::obtain(replica.clone())), None);
    let mut name: Option<(String, bool)> = None;
    let end = loop {
        tokio::select! {
            () = &mut election => anyhow::bail!("the election ended unexpectedly"),
            Some(ended) = tasks.join_next() => {
                ended.context("a task failed")?;
                anyhow::bail!("a task ended unexpectedly");
            }
            () = stop.recv() => break End::Stopped,
            () = connection.outdated() => break End::Outdated,
            changed = current.changed() => changed.context("the configuration watcher has stopped")?,
            key = &mut obtaining, if salt_key.is_none() => salt_key = Some(key),
        }
        let found = current.borrow_and_update().clone();
        let (Ok(mut settings), Some(key)) = (found, &salt_key) else {
            continue;
        };
        settings.options.salt_key = Some(key.clone());
        settings.options.has_acme_dns_hook = replica.acme_dns_hook.is_some();
        let options = &settings.options;
        let now = &(options.controller_name.clone(), options.extra_minimal_ocg);
        match &name {
            Some(before) if before != now => break End::Renamed,
            Some(_) => {}
            None => {
                name = Some(now.clone());
                replica.controller_name.clone_from(&now.0);
                let outcomes = start_resolution(&replica, settings, &current, &mut tasks)?;
                let _ = readiness.send(Some(outcomes.progress.clone()));
                let (_, none) = mpsc::channel(1);
                start_writers(
                    &replica,
                    process.signing.clone(),
                    &current,
                    outcomes,
                    std::mem::replace(&mut asked, none),
                    &mut tasks,
                );
            }
        }
    };
    tracing::info!(
        "{}",
        match end {
            End::Stopped => "received a signal to stop",
            End::Outdated =>
                "the address or the credentials of the API server may have changed; starting over",
            End::Renamed => "the controller's name has changed; starting over",
        }
    );
    let _ = step_down.send(true);
    election.await;
    // The next start binds the same addresses, so wait until the sockets are closed.
    tasks.shutdown().await;
    Ok(end)
}

struct Outcomes {
    progress: Progress,
    inputs: Sender<Input>,
    statuses: mpsc::UnboundedReceiver<StatusChange>,
    settings: watch::Receiver<SettingsByGateway>,
    services: watch::Receiver<ServiceRequests>,
    ocg_bundles: watch::Receiver<Option<Arc<OcgBundles>>>,
    /// The publisher sends the states of rollouts to the engine and the reporter.
    rollouts: watch::Sender<RolloutNotes>,
    orders: watch::Receiver<Arc<AcmeState>>,
}

fn start_resolution(
    replica: &Replica,
    settings: ControllerSettings,
    current: &watch::Receiver<CurrentSettings>,
    tasks: &mut JoinSet<()>,
) -> Result<Outcomes> {
    let (inputs, engine_inputs) = std::sync::mpsc::channel();
    let (touch, touched) = mpsc::unbounded_channel();
    let (references, wanted) = watch::channel(References::default());
    let (key_sets, requests) = watch::channel(None);
    let (desired, publications) = watch::channel(None);
    let (changes, statuses) = mpsc::unbounded_channel();
    let (gateway_settings, settings_receiver) = watch::channel(SettingsByGateway::default());
    let (services, requested) = watch::channel(ServiceRequests::default());
    let (ocg_bundles, ocg_bundles_receiver) = watch::channel(None);
    let (rollouts, rollouts_receiver) = watch::channel(RolloutNotes::new());
    let (certificate_requests, requested_certificates) = watch::channel(None);
    let (implies, implies_gateway) = watch::channel(settings.implies_gateway());
    let mut settings = settings;
    settings.options.namespace.clone_from(&replica.namespace);
    let extra_minimal_ocg = settings.options.extra_minimal_ocg;
    let engine = Engine {
        inputs: engine_inputs,
        settings,
        current: current.clone(),
        references,
        key_sets,
        desired,
        statuses: changes,
        gateway_settings,
        services,
        ocg_bundles,
        certificate_requests,
        metrics: Arc::clone(&replica.metrics),
        changes: replica.changes.clone(),
        rollouts: rollouts_receiver,
    };
    start_engine(engine)?;
    tasks.spawn(notify_engine(current.clone(), inputs.clone(), implies));
    let (awaited, awaits) = watch::channel(AwaitedKinds::new());
    let watches = Watches {
        replica: replica.clone(),
        inputs: inputs.clone(),
        touched: touch.clone(),
        awaited,
        implies_gateway,
        extra_minimal_ocg,
        x_backends: KnownXBackends::default(),
    };
    watches.spawn(tasks);
    tasks.spawn(keep_key_sets(replica.clone(), requests, touch));
    let orders = start_orders(replica, requested_certificates, tasks);
    let definitions = DefinitionReader {
        replica: replica.clone(),
        inputs: inputs.clone(),
    };
    tasks.spawn(definitions.run());
    let fetcher = Fetcher {
        replica: replica.clone(),
        references: wanted,
        touched,
        inputs: inputs.clone(),
    };
    tasks.spawn(fetcher.run());
    Ok(Outcomes {
        progress: Progress {
            publications,
            awaited: awaits,
        },
        inputs,
        statuses,
        settings: settings_receiver,
        services: requested,
        ocg_bundles: ocg_bundles_receiver,
        rollouts,
        orders,
    })
}

fn start_engine(engine: Engine) -> Result<()> {
    let thread = std::thread::Builder::new().name("engine".to_owned());
    let started = thread.spawn(move || engine.run());
    started
        .map(drop)
        .context("cannot start the engine's thread")
}

fn start_writers(
    replica: &Replica,
    signing: Signing,
    current: &watch::Receiver<CurrentSettings>,
    outcomes: Outcomes,
    asked: mpsc::Receiver<PageAsk>,
    tasks: &mut JoinSet<()>,
) {
    let Outcomes {
        progress: Progress {
            publications,
            awaited: _,
        },
        inputs,
        statuses,
        settings,
        services,
        ocg_bundles,
        rollouts,
        orders,
    } = outcomes;
    let (hosts, served_by) = watch::channel(HostsByGateway::None);
    let (addresses, service_addresses) = watch::channel(AddressesByGateway::None);
    let (report, shortages) = watch::channel(ProvisionReport::default());
    let (failures, failed) = watch::channel(GatewayProblems::new());
    let (warn, warnings) = watch::channel(CertificateWarnings::new());
    let (presences, followed) = watch::channel(AllPresences::new());
    let (transitions, turned) = mpsc::channel(MAX_UNREPORTED);
    let (rollout_hosts, hosts_for_rollouts) = watch::channel(RolloutHosts::None);
    let replica = || replica.clone();
    let provisioner = Provisioner {
        replica: replica(),
        desired: publications.clone(),
        settings,
        services,
        hosts: served_by,
        report,
        addresses,
    };
    tasks.spawn(provisioner.run());
    tasks.spawn(Finalizer { replica: replica() }.run());
    let ocg_bundles = OcgBundleWriter {
        replica: replica(),
        desired: ocg_bundles,
    };
    tasks.spawn(ocg_bundles.run());
    let rollout_notes = rollouts.subscribe();
    let publishing = Publishing {
        desired: publications,
        failures,
        signing,
        rollout_hosts: hosts_for_rollouts,
        rollout_notes: rollouts,
    };
    publishing.start(&replica(), tasks);
    let events = Events {
        replica: replica(),
        warnings,
        orders,
        presences: followed,
        transitions: turned,
        current: current.clone(),
    };
    tasks.spawn(events.run());
    let reporter = StatusReporter {
        replica: replica(),
        host_rules: current.clone(),
        changes: statuses,
        failures: failed,
        provisioned: shortages,
        service_addresses,
        hosts,
        inputs,
        warnings: warn,
        presences,
        transitions,
        asked,
        rollout_notes,
        rollout_hosts,
    };
    tasks.spawn(reporter.run());
}
