//! Commands that a running agent executes for a Gateway, and the agent's replies.
//!
//! In requests to the socket (`POST /orders`), a command is called an order.

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::envoy::restart::Strategy;

/// Body of a request: a command for one Gateway's Envoy, or for all Envoys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandRequest {
    /// `namespace/name`; all Gateways if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The command.
    #[serde(rename = "order")]
    pub command: InstanceCommand,
}

/// Command that an instance executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InstanceCommand {
    /// Replace the Envoy without dropping a request.
    Restart {
        /// Strategy for replacing the Envoy.
        #[serde(default)]
        strategy: Strategy,
    },
    /// Stop being ready, and ask clients to leave.
    Drain(DrainLimits),
    /// Become ready again.
    Undrain,
    /// Apply the revision that is held because it removes too much.
    Accept,
    /// Return to an accepted generation, and stay there.
    Rollback {
        /// Number of the generation.
        generation: u64,
    },
    /// Follow the source again.
    Resume,
}

/// Limits for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainLimits {
    /// Timeout of the drain.
    pub timeout_seconds: u64,
    /// Time between becoming unready and asking clients to leave.
    pub lame_duck_seconds: u64,
    /// Number of connections at which the host is considered drained.
    pub until_connections: u64,
}

/// One line of the response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// Gateway that the line is about.
    pub gateway: String,
    /// Progress or outcome, as text.
    pub message: String,
    /// On the last line: whether the command succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<bool>,
}

/// A command that is queued for an instance.
#[derive(Debug)]
pub(super) struct QueuedCommand {
    pub(super) command: InstanceCommand,
    pub(super) replies: ReplySink,
}

/// Sender for the replies to one command. The receiver may already be dropped.
#[derive(Clone, Debug)]
pub(super) struct ReplySink {
    pub(super) gateway: String,
    pub(super) replies: mpsc::UnboundedSender<Reply>,
}

impl ReplySink {
    /// Reports progress.
    pub(super) fn say(&self, message: impl Into<String>) {
        self.send(message.into(), None);
    }

    /// Reports the outcome, as the last reply.
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
