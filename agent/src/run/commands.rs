//! What a running agent can be told to do, and how it says how that goes.

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::envoy::restart::Strategy;

/// What is to be done, to one Gateway's Envoy or to those of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandRequest {
    /// `namespace/name`; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// What.
    pub order: InstanceCommand,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InstanceCommand {
    /// Replace the Envoy without dropping a request.
    Restart {
        /// Which way.
        #[serde(default)]
        strategy: Strategy,
    },
    /// Be ready no more, and have clients go.
    #[serde(rename_all = "camelCase")]
    Drain {
        /// How long it may take.
        timeout_seconds: u64,
        /// From the loss of readiness until clients are asked to go.
        lame_duck_seconds: u64,
        /// Done when no more are left.
        until_connections: u64,
    },
    /// Be ready again.
    Undrain,
    /// Apply what is held because it removes so much.
    Accept,
    /// Go back to an accepted generation, and stay there.
    Rollback {
        /// Its number.
        generation: u64,
    },
    /// Follow the source again.
    Resume,
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// Whose Envoy.
    pub gateway: String,
    /// What has happened.
    pub message: String,
    /// At the end: whether what was ordered was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<bool>,
}

/// An order on its way to a Gateway's task.
#[derive(Debug)]
pub(super) struct QueuedCommand {
    pub(super) what: InstanceCommand,
    pub(super) listener: ReplySink,
}

/// Whoever gave an order, and may be gone.
#[derive(Clone, Debug)]
pub(super) struct ReplySink {
    pub(super) gateway: String,
    pub(super) events: mpsc::UnboundedSender<Reply>,
}

impl ReplySink {
    /// Says how it goes on.
    pub(super) fn say(&self, message: impl Into<String>) {
        self.send(message.into(), None);
    }

    /// Says how it ended.
    pub(super) fn end(&self, result: Result<String, String>) {
        let done = result.is_ok();
        let (Ok(message) | Err(message)) = result;
        self.send(message, Some(done));
    }

    fn send(&self, message: String, done: Option<bool>) {
        let _ = self.events.send(Reply {
            gateway: self.gateway.clone(),
            message,
            done,
        });
    }
}
