//! One Gateway on this host: its Envoy, its files, and its last accepted state.

mod drain;
mod drain_guard;
mod handshakes;
mod overlap;
mod pacing;
mod persister;
mod publisher;
mod removal_guard;
mod replacement;
mod rollout_guard;
mod serving;
mod start;
mod target_selector;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sesame_kinds::api::NamespacedName;
use sesame_spans::Spans;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::overlap::Overlap;
use self::removal_guard::RemovalGuard;
use self::serving::Serving;
use self::start::Started;
use self::target_selector::TargetSelector;
use super::RunOptions;
use super::commands::QueuedCommand;
use super::directories::GatewayDirectories;
use super::engine::SourceState;
use super::observed::Observed;
use super::reload::LiveSettings;
use super::shutdown::Ending;
use super::target::Target;
use crate::passwords::{PasswordCheckers, PasswordSets, PasswordSocket};
use sesame_apply::tickets::Tickets;
use sesame_envoy::access_log::LogRotator;
use sesame_envoy::process::launch::Launcher;
use sesame_host::create_directory;
use sesame_host::reserve::{EnvoyInstances, InotifyReserve};
use sesame_sources::seal::SealingKeys;

const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Instance {
    pub(super) gateway: NamespacedName,
    pub(super) directories: GatewayDirectories,
    pub(super) settings: Arc<InstanceSettings>,
    pub(super) observed: watch::Sender<Observed>,
    pub(super) passwords: Arc<PasswordSets>,
}

pub(super) struct InstanceSettings {
    pub(super) options: Arc<RunOptions>,
    pub(super) binary: PathBuf,
    pub(super) version: String,
    pub(super) launcher: Launcher,
    /// Number of withdrawals that operators have accepted.
    pub(super) released: watch::Sender<u64>,
    pub(super) live: watch::Receiver<LiveSettings>,
    /// `None` if Envoy manages the session ticket keys.
    pub(super) tickets: Option<Tickets>,
    pub(super) passwords: PasswordCheckers,
    pub(super) sealing: Arc<SealingKeys>,
    pub(super) spans: Spans,
    pub(super) reserve: InotifyReserve,
}

impl Instance {
    fn instances(&self) -> EnvoyInstances {
        self.settings.reserve.envoy(self.gateway.to_string())
    }

    pub(super) async fn run(
        self,
        known: watch::Receiver<SourceState>,
        first: Arc<Target>,
        commands: mpsc::Receiver<QueuedCommand>,
        mut stop: watch::Receiver<Option<Ending>>,
    ) {
        let (guard, overlap) = {
            let live = self.settings.live.borrow();
            let directory = &self.directories.state;
            (
                RemovalGuard::new(live.most_removed, live.hold),
                Overlap::open(directory, live.bundle_overlap),
            )
        };
        let selector = TargetSelector::new(
            self.gateway.clone(),
            known,
            first,
            self.directories.state.clone(),
            Arc::clone(&self.settings.sealing),
            guard,
            overlap,
        );
        let mut logs = LogRotator::new(
            &self.settings.options.access_log,
            &self.directories.name(),
            self.directories.access_log(),
            self.settings.launcher.clone(),
        );
        let (layout, tickets) = (self.directories.layout(), self.settings.tickets.clone());
        // Dropping the set ends the task in it.
        let (started, _passwords) = loop {
            self.record_busy(true);
            // Envoy rejects listeners whose log it cannot open.
            if create_directory(&self.directories.runtime).is_ok() {
                logs.prepare();
            }
            match self.start_with_passwords(selector.selected()).await {
                Ok(started) => break started,
                Err(error) => {
                    self.record_busy(false);
                    tracing::error!("{error:#}");
                    self.observed
                        .send_modify(|observed| observed.trouble = Some(format!("{error:#}")));
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        _ = stop.wait_for(Option::is_some) => return,
                    }
                }
            }
        };
        let (admin, observed) = (started.supervisor.admin(), self.observed.clone());
        let serving = Serving::new(self, started, selector, stop).run(commands);
        let record = |why| observed.send_modify(|observed| observed.unlogged = why);
        let is_logged = logs.is_wanted();
        tokio::select! {
            () = serving => {}
            never = logs.run(admin, record), if is_logged => match never {},
            never = Tickets::follow(tickets, layout) => match never {},
        }
    }

    /// Serves password checks first, because a running Envoy may already be waiting. Publications
    /// must not delay them, so they have their own task.
    async fn start_with_passwords(
        &self,
        first: &Arc<Target>,
    ) -> anyhow::Result<(Started, JoinSet<Infallible>)> {
        self.passwords.offer(first.encoded.keys().iter());
        let path = self.directories.password_socket();
        let socket = PasswordSocket::bind(&path);
        let socket = socket.with_context(|| format!("cannot listen on {}", path.display()))?;
        let mut task = JoinSet::new();
        task.spawn(socket.serve(
            self.settings.passwords.of_gateway(),
            Arc::clone(&self.passwords),
        ));
        Ok((self.start(first).await?, task))
    }

    /// Does not wake receivers.
    fn record_busy(&self, busy: bool) {
        self.observed.send_if_modified(|observed| {
            observed.busy_since = busy.then(Instant::now);
            false
        });
    }
}
