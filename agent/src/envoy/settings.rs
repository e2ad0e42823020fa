//! What a supervisor is told, and what it says of its Envoy: values.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::admin::MAX_SOCKET_PATH;
use super::log::{ENVOY_LOG, EnvoyLog};
use super::process::launch::Launcher;
use super::process::{CommandLine, LONGEST_SOCKET_NAME, Lineage, shared_memory};

/// How soon a dead Envoy is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After a first death: files are put right meanwhile.
    pub at_once: Duration,
    /// After a second one.
    pub first: Duration,
    /// Doubles up to this.
    pub longest: Duration,
    /// The death of an Envoy that was live this long is a first one.
    pub reset_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            at_once: Duration::from_millis(10),
            first: Duration::from_millis(100),
            longest: Duration::from_secs(10),
            reset_after: Duration::from_secs(1),
        }
    }
}

impl Backoff {
    /// The pause after this many deaths in a row, at least one.
    pub(super) fn pause(self, deaths: u32) -> Duration {
        let Some(doublings) = deaths.checked_sub(2) else {
            return self.at_once;
        };
        let doublings = doublings.min(16);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}

/// What a supervisor needs to know.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// The Envoy binary.
    pub binary: PathBuf,
    /// Where bootstrap, pid file and log go; on the host's runtime file system, 0700.
    pub runtime_dir: PathBuf,
    /// The encoded bootstrap.
    pub bootstrap: Bytes,
    /// The admin socket, as the bootstrap names it.
    pub admin_socket: PathBuf,
    /// Worker threads; one for each core if absent.
    pub concurrency: Option<u32>,
    /// How long a removed listener drains.
    pub drain_time: Duration,
    /// Envoy's own log level.
    pub log_level: String,
    /// See [`Backoff`].
    pub backoff: Backoff,
    /// How long an Envoy that does not answer, left by an earlier agent, may drain before it is replaced.
    pub replace_grace: Duration,
    /// How long an Envoy may take to take over from another one.
    pub takeover: Duration,
    /// Who starts Envoys. Without one, Envoy is a child of this process and cannot be hot-restarted.
    pub launcher: Option<Launcher>,
}

impl SupervisorConfig {
    /// The usual settings.
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
            drain_time: Duration::from_secs(60),
            log_level: "info".to_owned(),
            backoff: Backoff::default(),
            replace_grace: Duration::from_secs(5),
            takeover: Duration::from_secs(60),
            launcher: None,
        }
    }

    /// Envoy's log.
    pub fn log(&self) -> EnvoyLog {
        EnvoyLog::new(self.runtime_dir.join(ENVOY_LOG))
    }

    pub(super) fn command(&self, lineage: Option<Lineage>) -> CommandLine {
        CommandLine {
            binary: self.binary.clone(),
            bootstrap: self.runtime_dir.join("bootstrap.pb"),
            concurrency: self.concurrency,
            drain_time: self.drain_time,
            log_level: self.log_level.clone(),
            lineage,
        }
    }

    /// The start of a new line, where Envoys can be hot-restarted.
    pub(super) fn new_lineage(&self) -> Option<Lineage> {
        self.launcher.as_ref()?;
        if self.runtime_dir.as_os_str().len() + LONGEST_SOCKET_NAME > MAX_SOCKET_PATH {
            tracing::warn!(directory = %self.runtime_dir.display(), "the path is too long for hot restarts");
            return None;
        }
        match shared_memory::is_usable() {
            Ok(()) => Some(Lineage::fresh()),
            Err(error) => {
                tracing::warn!(%error, "there is no shared memory for hot restarts");
                None
            }
        }
    }

    /// Who starts an Envoy: one that is in no line can be a child.
    pub(super) fn launcher_for(&self, lineage: Option<Lineage>) -> Option<&Launcher> {
        let launcher = self.launcher.as_ref();
        launcher.filter(|launcher| lineage.is_some() || matches!(launcher, Launcher::Socket(_)))
    }

    /// Whether the file of the binary is the one that Envoys are started from: a launcher that stays has one of its own, in
    /// another container maybe.
    pub(super) fn starts_from_binary(&self) -> bool {
        !matches!(self.launcher, Some(Launcher::Socket(_)))
    }
}

/// What the supervised Envoy is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Started, not live yet; no number before the process exists.
    Starting {
        /// The process.
        pid: Option<u32>,
    },
    /// Serves.
    Live {
        /// The process.
        pid: u32,
        /// Since when this agent knows it to be live.
        since: SystemTime,
        /// Whether an earlier agent started it.
        adopted: bool,
        /// Whether it accepted listeners and clusters; if not, it serves nothing.
        loaded: bool,
        /// Why it is to be replaced by another one, if it is.
        outdated: Option<&'static str>,
        /// Whether the one before it still reads the same files.
        accompanied: bool,
    },
    /// Died, and will be started again.
    Backoff {
        /// How often in a row.
        deaths: u32,
        /// When the next start is.
        until: SystemTime,
        /// How it died, in its own words if it said some.
        reason: String,
    },
    /// Drains, then ends.
    Stopping {
        /// The process.
        pid: u32,
    },
    /// Ended because it was asked to.
    Stopped,
}

impl State {
    /// Whether Envoy serves.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }
}
