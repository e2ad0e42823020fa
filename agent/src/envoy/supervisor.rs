//! Keeps one Envoy running: starts or adopts it, restarts it with back-off when it dies, stops it when asked.
//!
//! One task owns the process; everybody else sees its state through a `watch` and asks through the handle.
//! Dropping the handle ends the supervision and leaves Envoy serving, which is also what happens when the
//! agent is killed.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::admin::{Admin, MAX_SOCKET_PATH, Readiness};
use super::identity::{Identity, Running, find_running, replace_file};
use super::log::{EnvoyLog, Mark};
use super::process::{Exit, Process};
use super::settings::{State, SupervisorConfig};
use super::stop;
use crate::apply::{Kind, Subscription};

/// How often the size of the log is looked at.
const LOG_CHECK: Duration = Duration::from_secs(30);
/// How long the first versions may take after Envoy says that it is live. Later it counts as not loaded.
const FIRST_VERSIONS: Duration = Duration::from_secs(2);
const SLOWEST_POLL: Duration = Duration::from_millis(100);

/// Why the supervision did not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel's limit.
    #[error("{path}: {len} bytes are too long for a Unix socket, at most {MAX_SOCKET_PATH}; choose a shorter runtime directory", path = .path.display())]
    SocketPath {
        /// The socket.
        path: PathBuf,
        /// Its length.
        len: usize,
    },
    /// A file of the runtime directory.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

/// The handle of a supervised Envoy.
#[derive(Debug)]
pub struct Supervisor {
    state: watch::Receiver<State>,
    admin: Admin,
    log: EnvoyLog,
    requests: mpsc::Sender<Stop>,
}

/// The request to stop.
#[derive(Debug)]
struct Stop {
    grace: Duration,
    done: oneshot::Sender<()>,
}

impl Supervisor {
    /// Adopts the Envoy that runs with this bootstrap and command line, or starts one. Returns at once; wait
    /// for the state. Needs the CDS and LDS files to exist.
    pub async fn start(config: SupervisorConfig) -> Result<Self, StartError> {
        let len = config.admin_socket.as_os_str().len();
        if len > MAX_SOCKET_PATH {
            return Err(StartError::SocketPath {
                path: config.admin_socket,
                len,
            });
        }
        let failed = |source| StartError::Io {
            path: config.runtime_dir.clone(),
            source,
        };
        crate::apply::create_directory(&config.runtime_dir).map_err(failed)?;
        let admin = Admin::new(&config.admin_socket);
        let found = find_running(&config.pid_file(), &config.command(), &admin)
            .await
            .map_err(failed)?;
        let (state, seen) = watch::channel(State::Starting { pid: None });
        let (requests, inbox) = mpsc::channel(1);
        let log = config.log();
        let actor = Actor {
            admin: admin.clone(),
            log: log.clone(),
            config,
            state,
            inbox,
            deaths: 0,
        };
        tokio::spawn(actor.run(found));
        Ok(Self {
            state: seen,
            admin,
            log,
            requests,
        })
    }

    /// The admin interface of an Envoy that [`Supervisor::start`] would adopt or replace, if one runs.
    pub async fn finds_running(config: &SupervisorConfig) -> io::Result<Option<Admin>> {
        let admin = Admin::new(&config.admin_socket);
        let found = find_running(&config.pid_file(), &config.command(), &admin).await?;
        Ok(found.map(|_| admin))
    }

    /// What Envoy is doing, now and from now on.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Its admin interface; stays valid over restarts.
    pub fn admin(&self) -> Admin {
        self.admin.clone()
    }

    /// Its log.
    pub fn log(&self) -> EnvoyLog {
        self.log.clone()
    }

    /// Waits until Envoy is live; `false` if it was stopped instead.
    pub async fn live(&self) -> bool {
        let mut state = self.state.clone();
        let settled = state
            .wait_for(|state| state.is_live() || *state == State::Stopped)
            .await;
        settled.is_ok_and(|state| state.is_live())
    }

    /// Drains for at most `grace`, ends Envoy, and returns when it is gone.
    pub async fn stop(self, grace: Duration) {
        let (done, wait) = oneshot::channel();
        if self.requests.send(Stop { grace, done }).await.is_ok() {
            // An error means that the task has ended, and with it what was to be stopped.
            let _ = wait.await;
        }
    }
}

/// The task that owns the process.
struct Actor {
    config: SupervisorConfig,
    admin: Admin,
    log: EnvoyLog,
    state: watch::Sender<State>,
    inbox: mpsc::Receiver<Stop>,
    deaths: u32,
}

/// What ended a wait.
enum Event {
    Died(Exit),
    Stop(Stop),
    /// The handle was dropped.
    Abandoned,
}

impl Actor {
    async fn run(mut self, found: Option<Running>) {
        let mut next = match found {
            Some(running) => self.adopt_or_stop(running).await,
            None => None,
        };
        loop {
            let mark = self.log.mark();
            let (process, adopted) = match next.take() {
                Some(process) => (Ok(process), true),
                None => (self.spawn(), false),
            };
            let (reason, lived) = match process {
                Ok(process) => match self.supervise(&process, adopted).await {
                    (Event::Died(exit), lived) => (self.reason(exit, mark), lived),
                    (Event::Stop(stop), _) => return self.stop(&process, stop).await,
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
            tokio::select! {
                () = sleep(pause) => {}
                stop = self.inbox.recv() => {
                    if let Some(stop) = stop {
                        self.state.send_replace(State::Stopped);
                        // Whoever asked may be gone.
                        let _ = stop.done.send(());
                    }
                    return;
                }
            }
        }
    }

    /// A running Envoy with the wanted bootstrap and command line is kept; another one makes place.
    async fn adopt_or_stop(&mut self, running: Running) -> Option<Process> {
        let Running {
            identity,
            process,
            info,
        } = running;
        let command = self.config.command();
        if info.is_some() && identity.runs(&command, &self.config.bootstrap) {
            tracing::info!(
                pid = identity.pid,
                same_binary = identity.is_from(&command.binary),
                "adopted a running Envoy"
            );
            // It may have been found without a pid file.
            if let Err(error) = identity.write(&self.config.pid_file()) {
                tracing::warn!(%error, "cannot write the pid file");
            }
            return Some(process);
        }
        tracing::info!(
            pid = identity.pid,
            answers = info.is_some(),
            "a running Envoy has another bootstrap or does not answer: replacing it"
        );
        self.state
            .send_replace(State::Stopping { pid: identity.pid });
        let grace = if info.is_some() {
            self.config.replace_grace
        } else {
            Duration::ZERO
        };
        self.note_stopping(identity);
        stop::stop(&process, &self.admin, grace).await;
        None
    }

    fn spawn(&self) -> io::Result<Process> {
        let command = self.config.command();
        self.state.send_replace(State::Starting { pid: None });
        replace_file(&command.bootstrap, &self.config.bootstrap)?;
        let process = Process::spawn(&command, &self.log)?;
        let identity = Identity::of(&process, &command, &self.config.bootstrap);
        if let Err(error) = identity.write(&self.config.pid_file()) {
            // It can still be found by its command line.
            tracing::warn!(%error, "cannot write the pid file");
        }
        Ok(process)
    }

    /// Until the process ends or the supervision does; with how long it was live.
    async fn supervise(&mut self, process: &Process, adopted: bool) -> (Event, Duration) {
        let pid = process.pid();
        self.state.send_replace(State::Starting { pid: Some(pid) });
        let loaded = tokio::select! {
            loaded = first_load(&self.admin) => loaded,
            event = event(&mut self.inbox, process) => return (event, Duration::ZERO),
        };
        let since = Instant::now();
        self.state.send_replace(State::Live {
            pid,
            since: SystemTime::now(),
            adopted,
            loaded,
        });
        let mut check = interval(LOG_CHECK);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = event(&mut self.inbox, process) => return (event, since.elapsed()),
                _ = check.tick() => {
                    if let Err(error) = self.log.bound() {
                        tracing::warn!(%error, log = %self.log.path().display(), "cannot bound Envoy's log");
                    }
                }
            }
        }
    }

    /// An agent that comes while this one drains must not adopt.
    fn note_stopping(&self, identity: Identity) {
        let identity = Identity {
            stopping: true,
            ..identity
        };
        if let Err(error) = identity.write(&self.config.pid_file()) {
            tracing::warn!(%error, "cannot write the pid file");
        }
    }

    async fn stop(self, process: &Process, stop: Stop) {
        self.note_stopping(Identity::of(
            process,
            &self.config.command(),
            &self.config.bootstrap,
        ));
        self.state
            .send_replace(State::Stopping { pid: process.pid() });
        let exit = stop::stop(process, &self.admin, stop.grace).await;
        tracing::info!(pid = process.pid(), %exit, "stopped Envoy");
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

async fn event(inbox: &mut mpsc::Receiver<Stop>, process: &Process) -> Event {
    tokio::select! {
        stop = inbox.recv() => stop.map_or(Event::Abandoned, Event::Stop),
        exit = process.wait() => Event::Died(exit),
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

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    use crate::envoy::settings::Backoff;

    #[test]
    fn the_pause_doubles_to_its_limit() {
        let backoff = Backoff::default();
        let millis: Vec<u128> = [1, 2, 3, 7, 8, 100]
            .map(|deaths| backoff.pause(deaths).as_millis())
            .into();
        assert_eq!(millis, [100, 200, 400, 6400, 10_000, 10_000]);
    }

    #[tokio::test]
    async fn a_socket_path_that_the_kernel_would_refuse_is_refused_first() {
        let long = format!("/tmp/{}/admin.sock", "x".repeat(120));
        let config = SupervisorConfig::new("/bin/true", "/nonexistent", long, Bytes::new());
        assert!(matches!(
            Supervisor::start(config).await,
            Err(StartError::SocketPath { .. })
        ));
    }
}
