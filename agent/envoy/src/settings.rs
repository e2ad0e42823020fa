//! Supervisor settings and Envoy states.

use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use sesame_backoff::Backoff;
use sesame_render::connection_ids::IdMark;

use super::admin::MAX_SOCKET_PATH;
use super::log::{ENVOY_LOG, EnvoyLog};
use super::process::identity::Identity;
use super::process::launch::Launcher;
use super::process::{
    CommandLine, LONGEST_SOCKET_NAME, Lineage, connection_ids, launcher, shared_memory,
};
use sesame_host::durable;
use sesame_host::reserve::EnvoyInstances;

/// Default of [`SupervisorConfig::drain_time`].
pub const DEFAULT_DRAIN_TIME: Duration = Duration::from_secs(30);

/// Envoy rejects HTTP/3 listeners with more workers, because each HTTP/3 connection ID has a byte for
/// its worker.
const MAX_WORKERS: u32 = 254;

/// Backoff before a dead Envoy is restarted. The delay doubles with each death after the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartBackoff {
    /// Delay after the first death, during which the agent can repair Envoy's files.
    pub at_once: Duration,
    /// Delay after the second death.
    pub first: Duration,
    /// Maximum delay.
    pub longest: Duration,
    /// If Envoy was live for this long, its death counts as the first.
    pub reset_after: Duration,
}

impl Default for RestartBackoff {
    fn default() -> Self {
        Self {
            at_once: Duration::from_millis(10),
            first: Duration::from_millis(100),
            longest: Duration::from_secs(10),
            reset_after: Duration::from_secs(1),
        }
    }
}

impl RestartBackoff {
    /// `deaths` must be at least one.
    pub(super) fn pause(self, deaths: u32) -> Duration {
        let Some(doublings) = deaths.checked_sub(2) else {
            return self.at_once;
        };
        Backoff::new(self.first, self.longest).doubled(doublings)
    }
}

/// Settings for a supervisor.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// Path of the Envoy binary.
    pub binary: PathBuf,
    /// Runtime directory (mode 0700), preferably on tmpfs.
    pub runtime_dir: PathBuf,
    /// Encoded bootstrap.
    pub bootstrap: Bytes,
    /// Path of Envoy's admin socket, as in the bootstrap.
    pub admin_socket: PathBuf,
    /// Worker threads, or `None` for one per core.
    pub concurrency: Option<u32>,
    /// How long connections may take to finish while Envoy drains.
    pub drain_time: Duration,
    /// Envoy's log level.
    pub log_level: String,
    /// Backoff before a dead Envoy is restarted.
    pub backoff: RestartBackoff,
    /// Maximum drain time for an Envoy that cannot be adopted.
    pub replace_grace: Duration,
    /// Time limit for a new Envoy to take over.
    pub takeover: Duration,
    /// True if Envoy shares the launcher's or this process's standard output.
    pub has_stdout: bool,
    /// Starts Envoy. If `None`, Envoy is a child of this process and cannot be hot-restarted.
    pub launcher: Option<Launcher>,
    /// Lends inotify instances to Envoy processes that are starting.
    pub instances: EnvoyInstances,
}

impl SupervisorConfig {
    /// Returns the default settings.
    pub fn new(
        binary: impl Into<PathBuf>,
        runtime_dir: impl Into<PathBuf>,
        admin_socket: impl Into<PathBuf>,
        bootstrap: impl Into<Bytes>,
    ) -> Self {
        Self {
            binary: binary.into(),
            runtime_dir: runtime_dir.into(),
            bootstrap: bootstrap.into(),
            admin_socket: admin_socket.into(),
            concurrency: None,
            drain_time: DEFAULT_DRAIN_TIME,
            log_level: "info".to_owned(),
            backoff: RestartBackoff::default(),
            replace_grace: Duration::from_secs(5),
            takeover: Duration::from_secs(60),
            has_stdout: false,
            launcher: None,
            instances: EnvoyInstances::default(),
        }
    }

    /// Returns Envoy's log.
    pub fn log(&self) -> EnvoyLog {
        EnvoyLog::new(self.runtime_dir.join(ENVOY_LOG))
    }

    /// Writes the files that a new Envoy reads.
    pub(super) fn write_files(&self, command: &CommandLine) -> io::Result<()> {
        connection_ids::prepare_key(&command.bootstrap)?;
        durable::replace_file(&command.bootstrap, &self.bootstrap)
    }

    /// Returns the command line of an Envoy that has no predecessor at its ports.
    pub(super) fn command(&self, lineage: Option<Lineage>) -> CommandLine {
        CommandLine {
            binary: self.binary.clone(),
            bootstrap: self.runtime_dir.join("bootstrap.pb"),
            concurrency: workers(self.concurrency),
            drain_time: self.drain_time,
            log_level: self.log_level.clone(),
            lineage,
            has_stdout: self.has_stdout,
            id_mark: IdMark::after(None),
        }
    }

    pub(super) fn new_lineage(&self) -> Option<Lineage> {
        self.launcher.as_ref()?;
        if self.runtime_dir.as_os_str().len() + LONGEST_SOCKET_NAME > MAX_SOCKET_PATH {
            tracing::warn!(directory = %self.runtime_dir.display(), "the path is too long for hot restarts");
            return None;
        }
        if let Err(error) = shared_memory::is_usable() {
            tracing::warn!(%error, "no shared memory for hot restarts");
            return None;
        }
        Lineage::begin(&self.runtime_dir)
            .inspect_err(|error| tracing::warn!(%error, "cannot prepare hot restarts"))
            .ok()
    }

    pub(super) fn launcher_for(&self, lineage: Option<Lineage>) -> Option<&Launcher> {
        let launcher = self.launcher.as_ref();
        launcher.filter(|launcher| lineage.is_some() || matches!(launcher, Launcher::Socket(_)))
    }

    /// Returns true if a restart would run a different binary. Call only if the file at the
    /// configured path has changed. A launcher service chooses its own binary. If its choice is
    /// unknown, returns false to avoid an unnecessary restart.
    pub(super) fn starts_another(&self, identity: &Identity) -> bool {
        let Some(Launcher::Socket(socket)) = &self.launcher else {
            return true;
        };
        let next = launcher::executable(socket);
        let both = next.zip(identity.executable.as_ref());
        both.is_some_and(|(next, now)| !next.is_same(now))
    }
}

/// Limits the workers if Envoy would start too many.
fn workers(configured: Option<u32>) -> Option<u32> {
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let all = configured.unwrap_or_else(|| u32::try_from(cores()).unwrap_or(u32::MAX));
    if all > MAX_WORKERS {
        Some(MAX_WORKERS)
    } else {
        configured
    }
}

/// State of a supervised Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Envoy is not live yet.
    Starting {
        /// Process ID, once the process exists.
        pid: Option<u32>,
    },
    /// Envoy is serving.
    Live {
        /// Process ID.
        pid: u32,
        /// True if adopted from an earlier agent.
        adopted: bool,
        /// True if Envoy has accepted its first listeners and clusters.
        loaded: bool,
        /// Why Envoy is outdated and must be replaced.
        outdated: Option<&'static str>,
        /// True while the previous Envoy still runs and reads the same files.
        accompanied: bool,
        /// True if hot restart is possible.
        hot_restart: bool,
    },
    /// Envoy will be started after a delay.
    Backoff {
        /// Consecutive deaths, or zero if Envoy is waiting for inotify instances.
        deaths: u32,
        /// Why Envoy is not running, including its last log lines.
        reason: String,
    },
    /// Envoy is draining, and will exit.
    Stopping {
        /// Process ID.
        pid: u32,
    },
    /// Envoy has exited on request.
    Stopped,
}

impl State {
    /// Returns true if Envoy is live.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }
}
