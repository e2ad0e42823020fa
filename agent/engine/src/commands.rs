//! Commands that a running agent executes, and its replies. The socket's API (`POST /orders`) calls
//! a command an order.

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use sesame_envoy::restart::Strategy;

/// A command for one Gateway's Envoy, or for every Gateway's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandRequest {
    /// `namespace/name` of the Gateway; if absent, all Gateways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The command.
    #[serde(rename = "order")]
    pub command: InstanceCommand,
}

/// Command for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InstanceCommand {
    /// Replace the Envoy without dropping a request.
    Restart {
        /// How to replace the Envoy.
        #[serde(default)]
        strategy: Strategy,
    },
    /// Drain: become unready, and ask clients to disconnect.
    Drain(DrainLimits),
    /// End the drain.
    Undrain,
    /// Apply a revision that is held because it removes too much, or drains connections.
    Accept,
    /// Roll back to an accepted generation, and ignore the source until `Resume`.
    Rollback {
        /// Number of the generation.
        generation: u64,
    },
    /// End the rollback.
    Resume,
}

/// Limits for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainLimits {
    /// Maximum time to wait for connections to close.
    pub timeout_seconds: u64,
    /// Time between becoming unready and asking clients to disconnect.
    pub lame_duck_seconds: u64,
    /// The host counts as drained once at most this many connections are left.
    pub until_connections: u64,
}

/// One line of the response to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// The Gateway to which this line applies.
    pub gateway: String,
    /// Progress or outcome, as text for users.
    pub message: String,
    /// Set on the last line only: true if the command succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<bool>,
}

#[derive(Debug)]
pub(super) struct QueuedCommand {
    pub(super) command: InstanceCommand,
    pub(super) replies: ReplySink,
}

/// Discards replies once the receiver has been dropped.
#[derive(Clone, Debug)]
pub(super) struct ReplySink {
    pub(super) gateway: String,
    pub(super) replies: mpsc::UnboundedSender<Reply>,
}

impl ReplySink {
    pub(super) fn send_progress(&self, message: impl Into<String>) {
        self.send(message.into(), None);
    }

    /// Sends the outcome as the last reply.
    pub(super) fn end(&self, result: Result<String, String>) {
        let done = result.is_ok();
        let (Ok(message) | Err(message)) = result;
        self.send(message, Some(done));
    }

    fn send(&self, message: String, done: Option<bool>) {
        let _ = self.replies.send(Reply {
            gateway: self.gateway.clone(),
            message,
            done,
        });
    }
}
