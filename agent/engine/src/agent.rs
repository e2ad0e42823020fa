//! Starts the source, the services and the instances, and stops everything in order.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use sesame_kinds::api::NamespacedName;
use sesame_render::limits::{self, Limits};
use sesame_resolver::ResolvedGateway;
use sesame_spans::{CollectorError, Reporting, Spans};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::addresses::{OwnAddresses, host as host_addresses};
use super::directories::Directories;
use super::engine::SourceState;
use super::gateways::Gateways;
use super::instance::InstanceSettings;
use super::observed::newest;
use super::reload::{LiveSettings, ReadSettings, Reloader, SettingsReading};
use super::services::{self, Services};
use super::shutdown::{self, Ending};
use super::source;
use super::target::HostSettings;
use super::unit::Unit;
use super::withdrawal::Withdrawal;
use super::{RunOptions, accepted, answering, system_ca};
use crate::passwords::PasswordCheckers;
use sesame_apply::tickets::{TicketRotator, Tickets, TicketsError};
use sesame_envoy::process::launch::Launcher;
use sesame_envoy::process::launcher;
use sesame_host::free_ports;
use sesame_host::inotify::Budget;
use sesame_host::limits as host_limits;
use sesame_host::lock::Lock;
use sesame_host::reserve::InotifyReserve;
use sesame_host::service_manager;
use sesame_sources::local::LocalFiles;
use sesame_sources::seal::SealingKeys;

pub(super) async fn run(
    reading: SettingsReading,
    reader: Arc<dyn ReadSettings>,
) -> anyhow::Result<()> {
    // Register the signal handler first, because SIGHUP must not terminate the process.
    let hangups = signal(SignalKind::hangup())?;
    let live = watch::Sender::new(LiveSettings::new(&reading));
    let (started, options) = (reading.settings, Arc::new(reading.options));
    let (reloads, reload_requests) = mpsc::channel(1);
    let directories = Directories::create(&options.state_dir, &options.runtime_dir)?;
    let _locks = locked(&directories)?;
    let (released, accepts) = watch::channel(0);
    let sealing = prepare_sealing(&options, &directories).await;
    let inputs = (released, live.subscribe(), Arc::clone(&sealing));
    let settings = instance_settings(&options, &directories, inputs).await?;
    let (launcher, spans) = (settings.launcher.clone(), settings.spans.clone());
    let reserve = settings.reserve.clone();
    shutdown::await_launcher(&launcher).await;

    let (accepted, held) = accepted::load_all(&directories, &sealing);
    let unclaimed = held.clone();
    let local = local_files(&options, &accepted, &sealing)?;
    let (known_sender, known) = watch::channel(SourceState::default());
    let patience = live.subscribe();
    let clients = options.source.start(source::EngineInputs {
        resolve: options.resolve.clone(),
        limits: options.limits,
        host: host_settings(&options, &directories, local.clone(), held, &settings)?,
        known: known_sender,
        accepted,
        sealing: Arc::clone(&sealing),
        acme_dns_hook: options.acme_dns_hook.clone(),
        withdrawal: Withdrawal::new(move || patience.borrow().patience(), accepts),
        spans: spans.clone(),
    })?;
    answering::start(&options.local_files, &local, clients.as_ref())?;

    let mut gateways = Gateways::new(settings, directories.clone(), known.clone(), unclaimed);
    let (stops, requests) = mpsc::channel(1);
    let stopping = Arc::new(AtomicBool::new(false));
    let inputs = services::ServiceInputs {
        known: known.clone(),
        observed: gateways.observed(),
        queues: gateways.queues(),
        stopping: Arc::clone(&stopping),
        stops,
        reloads,
        live: live.subscribe(),
        sealing: Arc::clone(&sealing),
        clients,
        spans,
        reserve,
    };
    let services = Services::start(&options, &directories, inputs).await?;
    let (settings, unit) = (live.subscribe(), Unit::new(options.drain));
    let reloader = Reloader::new(reader, started, live, unit.readiness());
    tokio::spawn(reloader.serve(hangups, reload_requests));
    let stop_request = std::pin::pin!(shutdown::stop_requested(requests));
    let ending = match serve(&mut gateways, known, &services, unit, stop_request).await? {
        Some(grace) => Ending::Drain(grace),
        None => shutdown::signalled(options.drain, &settings, &launcher, &stopping).await,
    };
    announce_ending(&ending, &stopping);
    gateways.stop(ending).await;
    services.stop().await;
    Ok(())
}

/// Marks the agent as unready if Envoy is about to drain.
fn announce_ending(ending: &Ending, stopping: &AtomicBool) {
    match ending {
        Ending::Leave => {
            service_manager::stopping("Envoy keeps serving");
            tracing::info!("stopping; Envoy keeps serving");
        }
        Ending::Drain(grace) => {
            stopping.store(true, Ordering::Relaxed);
            service_manager::stopping("draining and stopping Envoy");
            tracing::info!(
                "stopping the agent and Envoy; connections have up to {grace:?} to finish"
            );
        }
    }
}

fn spans(options: &RunOptions) -> Result<Spans, CollectorError> {
    let in_cluster = options.source.report().cluster.map(|cluster| cluster.host);
    let host = in_cluster.unwrap_or_else(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
        name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
    });
    let reporting = Reporting {
        service: "sesame-agent".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host,
    };
    Spans::start(options.spans.clone(), reporting)
}

fn locked(directories: &Directories) -> anyhow::Result<[Lock; 2]> {
    Ok([
        Lock::acquire(directories.state())?,
        Lock::acquire(directories.runtime())?,
    ])
}

/// Also reseals the stored private keys.
async fn prepare_sealing(options: &RunOptions, directories: &Directories) -> Arc<SealingKeys> {
    let sealing = SealingKeys::prepare(&options.seal).await;
    match sealing.place() {
        "off" => tracing::warn!("private keys are stored in plaintext, because of --seal=off"),
        place => tracing::info!(by = place, "private keys on disk are sealed"),
    }
    for problem in sealing.problems() {
        tracing::error!("{problem}");
    }
    accepted::reseal(directories, &sealing);
    Arc::new(sealing)
}

fn local_files(
    options: &RunOptions,
    accepted: &[ResolvedGateway],
    sealing: &Arc<SealingKeys>,
) -> anyhow::Result<LocalFiles> {
    LocalFiles::start(&options.local_files, accepted, Arc::clone(sealing))
        .context("cannot follow local files")
}

/// Fails if the Envoy binary is missing.
async fn instance_settings(
    options: &Arc<RunOptions>,
    directories: &Directories,
    (released, live, sealing): (
        watch::Sender<u64>,
        watch::Receiver<LiveSettings>,
        Arc<SealingKeys>,
    ),
) -> anyhow::Result<InstanceSettings> {
    let binary = sesame_envoy::locate::locate(options.envoy.as_deref())?;
    let version = sesame_envoy::locate::version(&binary).await?;
    tracing::info!(envoy = %binary.display(), %version, "starting");
    let reserve = InotifyReserve::default();
    tokio::spawn(reserve.clone().keep());
    let passwords = PasswordCheckers::new().context("cannot get random numbers")?;
    Ok(InstanceSettings {
        binary,
        version: version.to_string(),
        launcher: shutdown::launcher(options, directories.runtime()),
        options: Arc::clone(options),
        released,
        live,
        tickets: tickets(options, directories)?,
        passwords,
        sealing,
        spans: spans(options)?,
        reserve,
    })
}

/// Returns `None` if Envoy manages the session ticket keys.
fn tickets(
    options: &RunOptions,
    directories: &Directories,
) -> Result<Option<Tickets>, TicketsError> {
    let Some(period) = options.session_tickets else {
        return Ok(None);
    };
    let rotator = TicketRotator::open(directories.runtime(), period)?;
    let tickets = rotator.tickets();
    tokio::spawn(rotator.run());
    Ok(Some(tickets))
}

/// Runs until the agent is asked to stop.
async fn serve(
    gateways: &mut Gateways,
    mut known: watch::Receiver<SourceState>,
    services: &Services,
    mut unit: Unit,
    mut stop_request: Pin<&mut impl Future<Output = io::Result<Option<Duration>>>>,
) -> anyhow::Result<Option<Duration>> {
    loop {
        let state = known.borrow_and_update().clone();
        gateways.reconcile(&state);
        // Do not keep outdated targets in memory during the wait.
        drop(state);
        tokio::select! {
            changed = known.changed() => {
                if changed.is_err() {
                    anyhow::bail!("the engine stopped unexpectedly; this is a bug, please report it with the log");
                }
            }
            () = gateways.drained() => {}
            () = unit.due() => {
                let now = known.borrow().clone();
                unit.update(&services.report(), &now, &newest(&gateways.observed()));
            }
            grace = &mut stop_request => return Ok(grace?),
        }
    }
}

fn host_settings(
    options: &RunOptions,
    directories: &Directories,
    local: LocalFiles,
    held: BTreeMap<NamespacedName, Vec<IpAddr>>,
    instances: &InstanceSettings,
) -> anyhow::Result<HostSettings> {
    let tickets = instances.tickets.clone();
    Ok(HostSettings {
        local,
        pool: if options.addresses.is_empty() {
            host_addresses::all()
        } else {
            options.addresses.clone()
        },
        port_map: free_ports::assign(&options.port_map, directories.state())
            .context("cannot choose free ports")?,
        subscription_budget: Budget::read(&directories.envoy_pids()).most(2),
        limits: envoy_limits(options, directories)?,
        budget_each: options.subscription_budget,
        trusted_hops: options.trusted_hops,
        zone: options.zone.clone(),
        fleet_hosts: options.fleet_hosts,
        system_ca: system_ca::find(),
        session_tickets: options.session_tickets.is_some(),
        tickets: tickets.map_or_else(Tickets::once, Ok)?,
        access_log: options.access_log.to,
        allow_local_endpoints: options.resolve.allow_local_endpoints,
        own_addresses: [options.health_address, options.metrics.address]
            .into_iter()
            .flatten()
            .collect(),
        addresses: OwnAddresses::new(host_addresses::every),
        refuse_host_endpoints: options.refuse_host_endpoints,
        endpoint_files: held
            .keys()
            .map(|name| (name.clone(), directories.gateway(name).endpoint_files()))
            .collect(),
        held,
        directories: directories.clone(),
    })
}

/// The open-file limit is the launcher's. The heap limit is derived from the launcher's memory
/// unless it is configured.
fn envoy_limits(
    options: &RunOptions,
    directories: &Directories,
) -> Result<Limits, limits::TooFewFiles> {
    let own = || (host_limits::open_files(), host_limits::memory());
    let (files, memory) = match shutdown::launcher(options, directories.runtime()) {
        Launcher::Program(_) => own(),
        Launcher::Socket(socket) => match launcher::limits(&socket) {
            Ok(limits) => limits,
            Err(error) => {
                tracing::warn!(
                    "assuming the agent's limits for each Envoy, because its launcher's limits are unknown: {error}"
                );
                own()
            }
        },
    };
    let heap = options.heap.unwrap_or_else(|| limits::heap_of(memory));
    let limits = Limits::new(files, heap)?;
    tracing::info!(?limits, "limits of each Envoy");
    Ok(limits)
}
