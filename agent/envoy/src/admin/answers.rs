//! Responses and errors from Envoy's admin interface.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::process::Lineage;

/// Why a request to the admin interface failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Envoy is not running or not ready yet.
    #[error("{socket}: cannot connect to the admin socket; is Envoy running? {source}", socket = .socket.display())]
    Connect {
        /// Path of the socket.
        socket: PathBuf,
        /// Operating system error.
        source: std::io::Error,
    },
    /// The connection broke during a request.
    #[error("{path}: the admin connection broke: {reason}")]
    Broken {
        /// URL path.
        path: String,
        /// How the connection broke.
        reason: String,
    },
    /// Envoy's main thread is busy or stuck.
    #[error("{path}: no response from the admin interface within {} s", .after.as_secs_f32())]
    Timeout {
        /// URL path.
        path: String,
        /// Exceeded time limit.
        after: Duration,
    },
    /// Unexpected response.
    #[error("{path}: unexpected response from the admin interface: {reason}")]
    Answer {
        /// URL path.
        path: String,
        /// The reason.
        reason: String,
    },
}

impl AdminError {
    /// Returns true if the process seems to be gone.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Broken { .. })
    }
}

/// Server state that Envoy reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Readiness {
    /// Serving, although dynamic configuration may not be accepted yet.
    Live,
    /// An admin request made the health check fail.
    Draining,
    /// Loading bootstrap clusters.
    PreInitializing,
    /// Loading listeners.
    Initializing,
}

/// Fields of `/server_info`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServerInfo {
    /// Version, such as `commit/1.40.0/Clean/RELEASE/BoringSSL`.
    pub version: String,
    /// Server state.
    pub state: Readiness,
    /// Hot restart protocol, such as `11.104`, or `disabled`.
    #[serde(default)]
    pub hot_restart_version: String,
    /// Envoy's command line.
    #[serde(default)]
    pub command_line_options: CommandLineOptions,
}

/// The command-line options that identify an Envoy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CommandLineOptions {
    /// Base ID of the lineage, in decimal.
    pub base_id: String,
    /// Restart epoch within the lineage, starting at 0.
    pub restart_epoch: u32,
    /// True if hot restart is disabled.
    pub disable_hot_restart: bool,
    /// Number of worker threads.
    pub concurrency: Option<u32>,
}

impl ServerInfo {
    /// Returns `None` if hot restart is disabled. If Envoy chose its own base ID, the command line
    /// contains 0.
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
