//! What Envoy's admin interface answers, as values.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::envoy::process::Lineage;

/// Why the admin interface did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Nobody listens: Envoy is not running, or not yet.
    #[error("{socket}: cannot connect to the admin socket, is Envoy running? {source}", socket = .socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The connection broke while a request was on its way.
    #[error("{path}: the admin connection broke: {reason}")]
    Broken {
        /// The request.
        path: String,
        /// Why.
        reason: String,
    },
    /// No answer in time: the main thread is busy or stuck.
    #[error("{path}: no answer from the admin interface within {} s", .after.as_secs_f32())]
    Timeout {
        /// The request.
        path: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// An answer that is not what was asked for.
    #[error("{path}: unexpected answer from the admin interface: {reason}")]
    Answer {
        /// The request.
        path: String,
        /// What was wrong.
        reason: String,
    },
}

impl AdminError {
    /// Whether the process behind the socket is gone, rather than busy or unhelpful.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Broken { .. })
    }
}

/// The state that Envoy reports of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Readiness {
    /// Serves. Says nothing about whether its configuration was accepted.
    Live,
    /// Fails its health check on purpose.
    Draining,
    /// Has not loaded its bootstrap's clusters yet.
    PreInitializing,
    /// Has not loaded its listeners yet.
    Initializing,
}

/// The parts of `/server_info` that are of use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServerInfo {
    /// `commit/1.40.0/Clean/RELEASE/BoringSSL`.
    pub version: String,
    /// See [`Readiness`].
    pub state: Readiness,
    /// `12s`.
    #[serde(default)]
    pub uptime_current_epoch: String,
    /// `11.104`, or `disabled`.
    #[serde(default)]
    pub hot_restart_version: String,
    /// What it was started with.
    #[serde(default)]
    pub command_line_options: CommandLineOptions,
}

/// What of its command line tells one Envoy from another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CommandLineOptions {
    /// A number.
    #[serde(default)]
    pub base_id: String,
    /// From 0.
    #[serde(default)]
    pub restart_epoch: u32,
    /// Whether it cannot be hot-restarted.
    #[serde(default)]
    pub disable_hot_restart: bool,
    /// Its workers.
    #[serde(default)]
    pub concurrency: Option<u32>,
}

impl ServerInfo {
    /// Its place in a line of Envoys; none if it cannot be hot-restarted.
    pub fn lineage(&self) -> Option<Lineage> {
        let CommandLineOptions {
            base_id,
            restart_epoch,
            disable_hot_restart,
            concurrency: _,
        } = &self.command_line_options;
        let base_id = base_id.parse().ok().filter(|_| !disable_hot_restart)?;
        Some(Lineage {
            base_id,
            epoch: *restart_epoch,
        })
    }
}

/// What is still warming: received, but not used yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warming {
    /// Clusters that wait for endpoints, secrets or a first health check.
    pub clusters: u64,
    /// Listeners that wait for route tables or secrets.
    pub listeners: u64,
}

impl Warming {
    /// Whether nothing is.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}
