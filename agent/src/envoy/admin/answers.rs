//! Responses and errors from Envoy's admin interface.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::envoy::process::Lineage;

/// Why a request to the admin interface failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Connection failed: Envoy is not running, or not ready yet.
    #[error("{socket}: cannot connect to the admin socket; is Envoy running? {source}", socket = .socket.display())]
    Connect {
        /// Path of the socket.
        socket: PathBuf,
        /// Cause of the error.
        source: std::io::Error,
    },
    /// The connection broke during a request.
    #[error("{path}: the admin connection broke: {reason}")]
    Broken {
        /// Path of the request.
        path: String,
        /// Cause of the error.
        reason: String,
    },
    /// No response in time: the main thread is busy or stuck.
    #[error("{path}: no response from the admin interface within {} s", .after.as_secs_f32())]
    Timeout {
        /// Path of the request.
        path: String,
        /// Time limit that was exceeded.
        after: Duration,
    },
    /// Unexpected response.
    #[error("{path}: unexpected response from the admin interface: {reason}")]
    Answer {
        /// Path of the request.
        path: String,
        /// Why the response is unexpected.
        reason: String,
    },
}

impl AdminError {
    /// Returns true if the process behind the socket is gone, not merely busy or misbehaving.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Broken { .. })
    }
}

/// State that Envoy reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Readiness {
    /// Serving. This does not mean that Envoy accepted its configuration.
    Live,
    /// Intentionally failing its health check.
    Draining,
    /// Still loading the clusters in its bootstrap.
    PreInitializing,
    /// Still loading its listeners.
    Initializing,
}

/// Parts of `/server_info` that Sesame uses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServerInfo {
    /// Version, as in `commit/1.40.0/Clean/RELEASE/BoringSSL`.
    pub version: String,
    /// State that Envoy reports.
    pub state: Readiness,
    /// Version of the hot restart protocol, as in `11.104`, or `disabled`.
    #[serde(default)]
    pub hot_restart_version: String,
    /// Command line with which Envoy was started.
    #[serde(default)]
    pub command_line_options: CommandLineOptions,
}

/// The parts of the command line that identify an Envoy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CommandLineOptions {
    /// The lineage's base ID, a number.
    #[serde(default)]
    pub base_id: String,
    /// Epoch within the lineage, starting at 0.
    #[serde(default)]
    pub restart_epoch: u32,
    /// True if Envoy cannot be hot-restarted.
    #[serde(default)]
    pub disable_hot_restart: bool,
    /// Number of worker threads.
    #[serde(default)]
    pub concurrency: Option<u32>,
}

impl ServerInfo {
    /// Returns the Envoy's place in a lineage according to its command line, or `None` if it cannot
    /// be hot-restarted. An Envoy that chose its own base ID reports 0.
    pub fn lineage(&self) -> Option<Lineage> {
        let CommandLineOptions {
            base_id,
            restart_epoch,
            disable_hot_restart,
            concurrency: _,
        } = &self.command_line_options;
        let base_id = base_id.parse().ok().filter(|_| !disable_hot_restart)?;
        Some(Lineage {
            base_id: Some(base_id),
            epoch: *restart_epoch,
        })
    }
}
