//! The task that owns an Envoy process.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sesame_backoff::Backoff;
use sesame_render::connection_ids::IdMark;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::stop;
use crate::admin::{Admin, Readiness};
use crate::log::{EnvoyLog, Mark};
use crate::process::identity::{Identity, PID_FILE, RunningEnvoy};
use crate::process::launch::launch;
use crate::process::{Exit, Process};
use crate::restart::{self, Parked, QuicSinks, RestartError, Restarted, Retiring, Sink};
use crate::settings::{State, SupervisorConfig};
use sesame_host::inotify::watched_by;
use sesame_host::processes::is_ending;
use sesame_host::reserve::{InstanceLoan, LackingInstances};
use sesame_host::until;
use sesame_render::xds::{Subscription, XdsKind};

const CHECK: Duration = Duration::from_secs(5);
/// Time limit for a live Envoy to accept its first listeners and clusters.
const FIRST_VERSIONS: Duration = Duration::from_secs(2);
const POLLS: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(20));
/// How long new connections wait for the next Envoy after Envoy dies.
const WAIT: Duration = Duration::from_secs(5);
/// If parked sockets receive more connections than this while Envoy is live, the agent stops
/// parking.
const MAX_STRAYS: u32 = 3;

#[derive(Debug)]
pub(super) enum SupervisorCommand {
    Stop(Stop),
    Restart(
        restart::Request,
        oneshot::Sender<Result<Restarted, RestartError>>,
    ),
}

#[derive(Debug)]
pub(super) struct Stop {
    pub(super) grace: Duration,
    pub(super) done: oneshot::Sender<()>,
}

pub(super) struct Actor {
    pub(super) config: SupervisorConfig,
    pub(super) admin: Admin,
    pub(super) log: EnvoyLog,
    pub(super) state: watch::Sender<State>,
    pub(super) inbox: mpsc::Receiver<SupervisorCommand>,
    pub(super) deaths: u32,
    pub(super) retiring: Option<Retiring>,
    /// Receives late replies after a failed replacement.
    pub(super) sink: Option<Sink>,
    pub(super) ports: watch::Receiver<BTreeSet<SocketAddr>>,
    pub(super) parked: Parked,
    /// When to close the parked sockets if no Envoy is live.
    pub(super) parked_until: Option<Instant>,
    /// Sockets for the handover in progress.
    pub(super) quic: QuicSinks,
    /// Inotify instances on loan to the Envoy that is starting.
    pub(super) loan: Option<InstanceLoan>,
}

#[derive(Debug, thiserror::Error)]
enum StartFailure {
    #[error(transparent)]
    Instances(#[from] LackingInstances),
    #[error(transparent)]
    Io(#[from] io::Error),
}

enum ProcessEvent {
    Died(Exit),
    Stop(Stop),
    /// The `Supervisor` was dropped.
    Abandoned,
}

impl Actor {
    pub(super) async fn run(mut self, found: Vec<RunningEnvoy>) {
        let mut next = self.take_over(found).await;
        loop {
            let mark = self.log.mark();
            let (running, adopted) = match next.take() {
                Some(running) => (Ok(running), true),
                None => (self.spawn(), false),
            };
            let (reason, lived) = match running {
                Ok(mut running) => match self.supervise(&mut running, adopted).await {
                    (ProcessEvent::Died(exit), lived) => {
                        self.loan = None;
                        self.config.instances.record_ended();
                        self.parked_until.get_or_insert(Instant::now() + WAIT);
                        running.forget(&self.config.runtime_dir);
                        (self.reason(exit, mark), lived)
                    }
                    (ProcessEvent::Stop(stop), _) => return self.stop(running, stop).await,
                    (ProcessEvent::Abandoned, _) => return,
                },
                Err(StartFailure::Instances(lacking)) => {
                    if self.wait_for_instances(lacking).await.is_break() {
                        return;
                    }
                    continue;
                }
                Err(StartFailure::Io(error)) => {
                    self.loan = None;
                    (format!("cannot start Envoy: {error}"), Duration::ZERO)
                }
            };
            let pause = self.record_death(reason, lived);
            if self.back_off(pause).await.is_break() {
                return;
            }
        }
    }

    fn spawn(&mut self) -> Result<RunningEnvoy, StartFailure> {
        // If too few instances are free, Envoy must watch fewer files before the next attempt.
        self.loan = Some(self.config.instances.borrow_for_start()?);
        Ok(self.launch()?)
    }

    fn launch(&self) -> io::Result<RunningEnvoy> {
        let lineage = self.config.new_lineage();
        let mut command = self.config.command(lineage);
        // An Envoy that this one replaces may still drain.
        let previous = Identity::read(&self.config.runtime_dir.join(PID_FILE));
        command.id_mark = IdMark::after(previous.and_then(|it| it.id_mark));
        self.state.send_replace(State::Starting { pid: None });
        self.config.write_files(&command)?;
        let held = launch(self.config.launcher_for(lineage), &command, &self.log)?;
        let identity = Identity::of(held.process(), &command, &self.config.bootstrap);
        self.write_pid_file(&identity);
        let process = held.release()?;
        if self.retiring.is_none() {
            // No other Envoy has sockets at its addresses.
            restart::record_order(&self.config.runtime_dir, &process, BTreeSet::new());
        }
        Ok(RunningEnvoy { identity, process })
    }

    /// Handles commands until Envoy dies or must stop. Also returns how long Envoy was live. A
    /// replacement sets `running` to the new Envoy.
    async fn supervise(
        &mut self,
        running: &mut RunningEnvoy,
        adopted: bool,
    ) -> (ProcessEvent, Duration) {
        let pid = running.process.pid();
        self.state.send_replace(State::Starting { pid: Some(pid) });
        let loaded = match self.first_load(running).await {
            Ok(loaded) => loaded,
            Err(event) => return (event, Duration::ZERO),
        };
        self.config
            .instances
            .record_running(watched_by(pid), self.loan.take());
        running.identity.refresh(&self.config.runtime_dir);
        self.write_pid_file(&running.identity);
        let mut since = Instant::now();
        let mut strays = 0;
        self.let_go();
        self.park(running, strays);
        self.live(running, adopted, loaded);
        let mut check = interval(CHECK);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = event(&mut self.inbox, &running.process) => match event {
                    Ok(event) => return (event, since.elapsed()),
                    Err((request, done)) => {
                        let result = self.restart(running, request).await;
                        if result.is_ok() {
                            let loaded = first_load(&self.admin).await;
                            self.live(running, false, loaded);
                            since = Instant::now();
                            strays = 0;
                        }
                        self.park(running, strays);
                        let _ = done.send(result);
                    }
                },
                Ok(()) = self.ports.changed() => self.park(running, strays),
                () = self.parked.is_awaited() => {
                    if !is_ending(running.process.pid()) && self.parked.hand_over(&running.process) {
                        strays += 1;
                        self.park(running, strays);
                    }
                }
                _ = check.tick() => {
                    let accompanied = self.retiring.is_some();
                    self.check(running);
                    if !is_ending(running.process.pid()) {
                        self.parked.give_up();
                    }
                    if accompanied || self.parked.is_empty() {
                        self.park(running, strays);
                    }
                }
            }
        }
    }

    /// Returns an error if supervision ends first.
    async fn first_load(&mut self, running: &RunningEnvoy) -> Result<bool, ProcessEvent> {
        let admin = self.admin.clone();
        let loading = first_load(&admin);
        tokio::pin!(loading);
        loop {
            tokio::select! {
                loaded = &mut loading => return Ok(loaded),
                () = until(self.parked_until) => self.let_go(),
                event = event(&mut self.inbox, &running.process) => match event {
                    Ok(event) => return Err(event),
                    Err((_, done)) => {
                        let _ = done.send(Err(RestartError::NotLive));
                    }
                }
            }
        }
    }

    /// Closes all parked sockets. Waiting connections move to the Envoy that now listens at the
    /// same address, or are reset.
    pub(super) fn let_go(&mut self) {
        self.parked_until = None;
        self.parked.release();
    }

    fn park(&mut self, running: &RunningEnvoy, strays: u32) {
        if self.retiring.is_some() || strays > MAX_STRAYS {
            self.parked.release();
        } else if !is_ending(running.process.pid()) {
            let ports = self.ports.borrow_and_update().clone();
            self.parked.follow(&running.process, &ports);
        }
    }

    fn live(&self, running: &RunningEnvoy, adopted: bool, loaded: bool) {
        self.state.send_replace(State::Live {
            pid: running.process.pid(),
            adopted,
            loaded,
            outdated: self.outdated(&running.identity),
            accompanied: self.retiring.is_some(),
            hot_restart: running.identity.lineage.is_some(),
        });
    }

    fn check(&mut self, running: &RunningEnvoy) {
        if let Err(error) = self.log.bound() {
            tracing::warn!(%error, log = %self.log.path().display(), "cannot limit the size of Envoy's log");
        }
        if self.retiring.as_ref().is_some_and(Retiring::is_gone) {
            self.retiring = None;
            self.config.instances.record_leaving(0);
        }
        let now = (self.outdated(&running.identity), self.retiring.is_some());
        self.state.send_if_modified(|state| match state {
            State::Live {
                outdated,
                accompanied,
                ..
            } if (*outdated, *accompanied) != now => {
                (*outdated, *accompanied) = now;
                true
            }
            _ => false,
        });
    }

    fn outdated(&self, identity: &Identity) -> Option<&'static str> {
        let command = self.config.command(None);
        identity
            .outdated(&command, &self.config.bootstrap)
            // If the binary is missing, it is probably being replaced.
            .or_else(|| {
                let differs = command.binary.is_file() && !identity.is_from(&command.binary);
                let replaced = differs && self.config.starts_another(identity);
                replaced.then_some("its binary was replaced")
            })
    }

    pub(super) fn write_pid_file(&self, identity: &Identity) {
        if let Err(error) = identity.write(&self.config.runtime_dir.join(PID_FILE)) {
            // A later agent can still identify the process by its command line.
            tracing::warn!(%error, "cannot write the pid file");
        }
    }

    /// A new agent that starts during the drain must not adopt this Envoy.
    pub(super) fn record_stopping(&self, identity: Identity) {
        self.write_pid_file(&Identity {
            stopping: true,
            ..identity
        });
    }

    async fn stop(mut self, running: RunningEnvoy, stop: Stop) {
        self.parked.release();
        self.record_stopping(running.identity.clone());
        let process = &running.process;
        self.state
            .send_replace(State::Stopping { pid: process.pid() });
        let exit = stop::stop(process, &self.admin, stop.grace).await;
        tracing::info!(pid = process.pid(), %exit, "stopped Envoy");
        self.end_retiring().await;
        running.forget(&self.config.runtime_dir);
        self.state.send_replace(State::Stopped);
        let _ = stop.done.send(());
    }

    fn reason(&self, exit: Exit, mark: Mark) -> String {
        let words = self.log.last_words(mark);
        if words.is_empty() {
            exit.to_string()
        } else {
            format!("{exit}: {words}")
        }
    }
}

type RestartCommand = (
    restart::Request,
    oneshot::Sender<Result<Restarted, RestartError>>,
);

/// Returns a restart command as `Err`.
async fn event(
    inbox: &mut mpsc::Receiver<SupervisorCommand>,
    process: &Process,
) -> Result<ProcessEvent, RestartCommand> {
    tokio::select! {
        request = inbox.recv() => match request {
            None => Ok(ProcessEvent::Abandoned),
            Some(SupervisorCommand::Stop(stop)) => Ok(ProcessEvent::Stop(stop)),
            Some(SupervisorCommand::Restart(request, done)) => Err((request, done)),
        },
        exit = process.wait() => Ok(ProcessEvent::Died(exit)),
    }
}

/// Returns false if a live Envoy does not accept listeners and clusters within `FIRST_VERSIONS`.
async fn first_load(admin: &Admin) -> bool {
    let mut polls = POLLS;
    let mut live_since = None;
    loop {
        if live_since.is_none() && matches!(admin.ready().await, Ok(Readiness::Live)) {
            live_since = Some(Instant::now());
        }
        if let Some(since) = live_since {
            if let Ok(versions) = admin.version_texts().await {
                let taken = |kind| {
                    let subscription = Subscription::new(kind, "");
                    versions
                        .of(&subscription, "")
                        .is_some_and(|version| !version.is_empty())
                };
                if taken(XdsKind::Clusters) && taken(XdsKind::Listeners) {
                    return true;
                }
            }
            if since.elapsed() > FIRST_VERSIONS {
                return false;
            }
        }
        sleep(polls.next_pause()).await;
    }
}
