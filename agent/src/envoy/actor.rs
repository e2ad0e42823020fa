//! The task that owns an Envoy: starts it, sees it live, has it replaced, sees it end.

use std::fs;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::admin::{Admin, AdminError, Readiness};
use super::identity::{Identity, NEXT_PID_FILE, PID_FILE, Running, replace_file};
use super::launch::launch;
use super::log::{EnvoyLog, Mark};
use super::process::Exit;
use super::restart::{
    self, Attempt, OLD_ADMIN, RestartError, Restarted, Retiring, Way, shared_memory,
};
use super::settings::{State, SupervisorConfig};
use super::stop;
use super::validate::{Verdict, validate};
use crate::apply::{Kind, Subscription};

/// How often the size of the log and the binary's file are looked at.
const CHECK: Duration = Duration::from_secs(5);
/// How long the first versions may take after Envoy says that it is live. Later it counts as not loaded.
const FIRST_VERSIONS: Duration = Duration::from_secs(2);
const SLOWEST_POLL: Duration = Duration::from_millis(100);
/// How long a running Envoy gets to answer: it may be loading its largest file.
const ANSWER: Duration = Duration::from_secs(5);

/// What the task is asked.
#[derive(Debug)]
pub(super) enum Request {
    /// To end Envoy.
    Stop(Stop),
    /// To replace it.
    Restart(
        restart::Request,
        oneshot::Sender<Result<Restarted, RestartError>>,
    ),
}

/// The request to stop.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) grace: Duration,
    pub(super) done: oneshot::Sender<()>,
}

/// The task that owns the process.
pub(super) struct Actor {
    pub(super) config: SupervisorConfig,
    pub(super) admin: Admin,
    pub(super) log: EnvoyLog,
    pub(super) state: watch::Sender<State>,
    pub(super) inbox: mpsc::Receiver<Request>,
    pub(super) deaths: u32,
    pub(super) retiring: Option<Retiring>,
}

/// What ended a wait.
enum Event {
    Died(Exit),
    Stop(Stop),
    /// The handle was dropped.
    Abandoned,
}

impl Actor {
    pub(super) async fn run(mut self, found: Vec<Running>) {
        let mut next = self.take_over(found).await;
        loop {
            let mark = self.log.mark();
            let (running, adopted) = match next.take() {
                Some(running) => (Ok(running), true),
                None => (self.spawn(), false),
            };
            let (reason, lived) = match running {
                Ok(mut running) => match self.supervise(&mut running, adopted).await {
                    (Event::Died(exit), lived) => {
                        self.forget(&running);
                        (self.reason(exit, mark), lived)
                    }
                    (Event::Stop(stop), _) => return self.stop(running, stop).await,
                    (Event::Abandoned, _) => return,
                },
                Err(error) => (format!("cannot start Envoy: {error}"), Duration::ZERO),
            };
            self.deaths = if lived >= self.config.backoff.reset_after {
                1
            } else {
                self.deaths.saturating_add(1)
            };
            let pause = self.config.backoff.pause(self.deaths);
            tracing::error!(deaths = self.deaths, ?pause, %reason, "Envoy died");
            self.state.send_replace(State::Backoff {
                deaths: self.deaths,
                until: SystemTime::now() + pause,
                reason,
            });
            let pause = sleep(pause);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    request = self.inbox.recv() => match request {
                        Some(Request::Restart(_, done)) => {
                            // Whoever asked may be gone.
                            let _ = done.send(Err(RestartError::NotLive));
                        }
                        Some(Request::Stop(stop)) => {
                            self.end_retiring().await;
                            self.state.send_replace(State::Stopped);
                            // Whoever asked may be gone.
                            let _ = stop.done.send(());
                            return;
                        }
                        None => return,
                    }
                }
            }
        }
    }

    /// An Envoy that an earlier agent left is kept if it answers, or can be taken over; another one makes place. Of
    /// two, one was about to replace the other.
    async fn take_over(&mut self, mut found: Vec<Running>) -> Option<Running> {
        let mut running = found.pop()?;
        if let Some(parent) = found.pop() {
            let way = if parent.identity.lineage.map(|line| line.base_id)
                == running.identity.lineage.map(|line| line.base_id)
                && parent.identity.lineage.is_some()
            {
                Way::Hot
            } else {
                Way::Handover
            };
            tracing::info!(before = parent.process.pid(), now = running.process.pid(), %way, "an Envoy was being replaced; going on with that");
            self.state.send_replace(State::Starting {
                pid: Some(running.process.pid()),
            });
            let attempt = Attempt {
                config: &self.config,
                admin: &self.admin,
                parent: &parent,
                way,
            };
            match attempt.resume(running).await {
                Ok(child) => {
                    self.retire(parent, way);
                    running = child;
                }
                Err(failed) => {
                    tracing::error!("{}", failed.reason);
                    running = parent;
                }
            }
        } else {
            self.tidy(&running);
        }
        let info = self.admin.with_timeout(ANSWER).server_info().await;
        running.identity.refresh();
        let stopping = running.identity.stopping;
        match info {
            Ok(_) if !stopping => {
                tracing::info!(pid = running.process.pid(), "adopted a running Envoy");
                // It may have been found without a pid file.
                self.note(&running.identity);
                return Some(running);
            }
            // An interrupted hot restart has taken its admin socket; it serves, and can be taken over.
            Err(AdminError::Connect { .. }) if !stopping && running.identity.lineage.is_some() => {
                self.note(&running.identity);
                match self.replace(&running, &restart::Request::default()).await {
                    Ok((child, way)) => {
                        self.retire(running, way);
                        return Some(child);
                    }
                    Err(error) => tracing::error!(%error, "cannot take over from the running Envoy"),
                }
            }
            _ => {}
        }
        tracing::info!(
            pid = running.process.pid(),
            "a running Envoy does not answer, or drains already: replacing it"
        );
        self.state.send_replace(State::Stopping {
            pid: running.process.pid(),
        });
        let grace = match self.admin.with_timeout(ANSWER).ready().await {
            Ok(_) => self.config.replace_grace,
            Err(_) => Duration::ZERO,
        };
        self.note_stopping(running.identity.clone());
        stop::stop(&running.process, &self.admin, grace).await;
        self.forget(&running);
        None
    }

    /// Clears away what is left of a replacement of which only one Envoy is left.
    fn tidy(&self, running: &Running) {
        let old = self.config.runtime_dir.join(OLD_ADMIN);
        let answers = |path: &std::path::Path| std::os::unix::net::UnixStream::connect(path).is_ok();
        if answers(&old) && !answers(&self.config.admin_socket) {
            // The second one has taken its place and died.
            let _ = fs::rename(&old, &self.config.admin_socket);
        } else {
            let _ = fs::remove_file(old);
        }
        if let Some(line) = running.identity.lineage
            && matches!(shared_memory::is_initializing(line), Ok(true))
            && let Err(error) = shared_memory::repair(line)
        {
            tracing::warn!(%error, "the shared memory cannot be put right");
        }
        let _ = fs::remove_file(self.config.runtime_dir.join(NEXT_PID_FILE));
    }

    fn spawn(&self) -> io::Result<Running> {
        let lineage = self.config.new_lineage();
        let command = self.config.command(lineage);
        self.state.send_replace(State::Starting { pid: None });
        replace_file(&command.bootstrap, &self.config.bootstrap)?;
        let held = launch(self.config.launcher_for(lineage), &command, &self.log)?;
        let identity = Identity::of(held.process(), &command, &self.config.bootstrap);
        self.note(&identity);
        Ok(Running {
            identity,
            process: held.release()?,
        })
    }

    /// Until the process ends, or the supervision does; with how long it was live. One that is replaced on the way is
    /// the new one from then on.
    async fn supervise(&mut self, running: &mut Running, adopted: bool) -> (Event, Duration) {
        let pid = running.process.pid();
        self.state.send_replace(State::Starting { pid: Some(pid) });
        let admin = self.admin.clone();
        let loading = first_load(&admin);
        tokio::pin!(loading);
        let loaded = loop {
            tokio::select! {
                loaded = &mut loading => break loaded,
                event = event(&mut self.inbox, &running.process) => match event {
                    Ok(event) => return (event, Duration::ZERO),
                    Err((_, done)) => {
                        // Whoever asked may be gone.
                        let _ = done.send(Err(RestartError::NotLive));
                    }
                }
            }
        };
        running.identity.refresh();
        self.note(&running.identity);
        let mut since = Instant::now();
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
                        }
                        // Whoever asked may be gone.
                        let _ = done.send(result);
                    }
                },
                _ = check.tick() => self.check(running),
            }
        }
    }

    fn live(&self, running: &Running, adopted: bool, loaded: bool) {
        self.state.send_replace(State::Live {
            pid: running.process.pid(),
            since: SystemTime::now(),
            adopted,
            loaded,
            outdated: self.outdated(&running.identity),
        });
    }

    /// Looks after what changes slowly.
    fn check(&mut self, running: &Running) {
        if let Err(error) = self.log.bound() {
            tracing::warn!(%error, log = %self.log.path().display(), "cannot bound Envoy's log");
        }
        if self.retiring.as_ref().is_some_and(Retiring::is_gone) {
            self.retiring = None;
        }
        let now = self.outdated(&running.identity);
        self.state.send_if_modified(|state| match state {
            State::Live { outdated, .. } if *outdated != now => {
                *outdated = now;
                true
            }
            _ => false,
        });
    }

    fn outdated(&self, identity: &Identity) -> Option<&'static str> {
        let command = self.config.command(None);
        identity
            .outdated(&command, &self.config.bootstrap)
            // A binary that is not there is being replaced.
            .or_else(|| {
                let replaced = command.binary.is_file() && !identity.is_from(&command.binary);
                replaced.then_some("its binary was replaced")
            })
    }

    /// Replaces the Envoy; on an error it goes on, unless it has ended, which the caller sees.
    async fn restart(
        &mut self,
        running: &mut Running,
        request: restart::Request,
    ) -> Result<Restarted, RestartError> {
        let start = Instant::now();
        if let Some(retiring) = &mut self.retiring {
            request.say(format!(
                "waiting until the Envoy of the last restart (process {}) has ended",
                retiring.pid()
            ));
            retiring.gone().await;
            self.retiring = None;
        }
        let (child, way) = self.replace(running, &request).await?;
        if let Some(bootstrap) = request.bootstrap {
            self.config.bootstrap = bootstrap;
        }
        let parent = std::mem::replace(running, child);
        let restarted = Restarted {
            way,
            before: parent.process.pid(),
            now: running.process.pid(),
            took: start.elapsed(),
        };
        self.retire(parent, way);
        self.admin.reconnect().await;
        tracing::info!(before = restarted.before, now = restarted.now, %way, took = ?restarted.took, "Envoy was replaced");
        Ok(restarted)
    }

    /// Has another Envoy take over.
    async fn replace(
        &self,
        parent: &Running,
        request: &restart::Request,
    ) -> Result<(Running, Way), RestartError> {
        let mut config = self.config.clone();
        if let Some(bootstrap) = &request.bootstrap {
            config.bootstrap.clone_from(bootstrap);
        }
        let facts = restart::gather(
            parent,
            &self.admin,
            &config.binary,
            config.launcher.is_some(),
        )
        .await;
        let plan = restart::decide(request.strategy, &facts)?;
        self.validate(&config, request).await?;
        if let Some(why) = &plan.not_hot {
            request.say(format!("no hot restart: {why}"));
        }
        if let (true, Some(line)) = (plan.repair, parent.identity.lineage) {
            request.say("putting right the shared memory, in which an interrupted restart has left its mark");
            if let Err(error) = shared_memory::repair(line) {
                return Err(RestartError::Failed(vec![error.to_string()]));
            }
        }
        let mut failures = Vec::new();
        let mut ways = plan.ways.as_slice();
        while let [way, rest @ ..] = ways {
            request.say(format!("{way}: starting the new Envoy"));
            let attempt = Attempt {
                config: &config,
                admin: &self.admin,
                parent,
                way: *way,
            };
            ways = rest;
            match attempt.run().await {
                Ok(child) => {
                    request.say(format!("{way}: the new Envoy serves"));
                    return Ok((child, *way));
                }
                Err(failed) => {
                    tracing::error!("{}", failed.reason);
                    request.say(failed.reason.clone());
                    failures.push(failed.reason);
                    if !failed.parent_serves && parent.process.exit().is_none() {
                        request.say("the Envoy before has given its sockets away; starting another one at once");
                        ways = &[Way::Handover];
                    }
                }
            }
            if parent.process.exit().is_some() {
                failures.push("the Envoy before has ended as well".to_owned());
                break;
            }
            if failures.len() > 4 {
                break;
            }
        }
        Err(RestartError::Failed(failures))
    }

    async fn validate(
        &self,
        config: &SupervisorConfig,
        request: &restart::Request,
    ) -> Result<(), RestartError> {
        let directory = config.runtime_dir.join("validate");
        let candidates = [
            ("bootstrap", Some(&config.bootstrap)),
            ("configuration", request.served.as_ref()),
        ];
        for (what, candidate) in candidates {
            let Some(candidate) = candidate else { continue };
            match validate(&config.binary, &directory, candidate).await {
                Ok(Verdict::Valid) => {}
                Ok(Verdict::Invalid { envoy_words }) => {
                    return Err(RestartError::Invalid { what, envoy_words });
                }
                Err(error) => return Err(RestartError::NoVerdict(error.to_string())),
            }
        }
        request.say("the new Envoy finds its bootstrap valid");
        Ok(())
    }

    fn retire(&mut self, parent: Running, way: Way) {
        self.retiring = Some(Retiring::start(
            parent,
            way,
            self.config.runtime_dir.clone(),
            self.config.drain_time,
        ));
    }

    async fn end_retiring(&mut self) {
        if let Some(retiring) = self.retiring.take() {
            retiring.end().await;
        }
    }

    fn note(&self, identity: &Identity) {
        if let Err(error) = identity.write(&self.config.runtime_dir.join(PID_FILE)) {
            // It can still be found by its command line.
            tracing::warn!(%error, "cannot write the pid file");
        }
    }

    /// An agent that comes while this one drains must not adopt.
    fn note_stopping(&self, identity: Identity) {
        self.note(&Identity {
            stopping: true,
            ..identity
        });
    }

    /// Removes what an Envoy that has ended leaves, unless its line goes on.
    fn forget(&self, running: &Running) {
        if let Some(line) = running.identity.lineage {
            shared_memory::remove(line);
            for socket in line.sockets(&self.config.runtime_dir) {
                let _ = fs::remove_file(socket);
            }
        }
    }

    async fn stop(mut self, running: Running, stop: Stop) {
        self.note_stopping(running.identity.clone());
        let process = &running.process;
        self.state
            .send_replace(State::Stopping { pid: process.pid() });
        let exit = stop::stop(process, &self.admin, stop.grace).await;
        tracing::info!(pid = process.pid(), %exit, "stopped Envoy");
        self.end_retiring().await;
        self.forget(&running);
        self.state.send_replace(State::Stopped);
        // Whoever asked may be gone.
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

type RestartAsked = (
    restart::Request,
    oneshot::Sender<Result<Restarted, RestartError>>,
);

/// The error is the request to restart.
async fn event(
    inbox: &mut mpsc::Receiver<Request>,
    process: &super::process::Process,
) -> Result<Event, RestartAsked> {
    tokio::select! {
        request = inbox.recv() => match request {
            None => Ok(Event::Abandoned),
            Some(Request::Stop(stop)) => Ok(Event::Stop(stop)),
            Some(Request::Restart(request, done)) => Err((request, done)),
        },
        exit = process.wait() => Ok(Event::Died(exit)),
    }
}

/// Waits until Envoy is live and has taken its first listeners and clusters; `false` if it is live without.
async fn first_load(admin: &Admin) -> bool {
    let mut pause = Duration::from_millis(2);
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
                if taken(Kind::Clusters) && taken(Kind::Listeners) {
                    return true;
                }
            }
            if since.elapsed() > FIRST_VERSIONS {
                return false;
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(SLOWEST_POLL);
    }
}
