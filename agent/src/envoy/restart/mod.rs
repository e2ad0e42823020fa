//! Replaces a running Envoy with a new one without dropping requests.
//!
//! There are two methods. *Hot*: the second Envoy takes over the first Envoy's sockets and
//! statistics through Envoy's hot restart protocol and shared memory. *Handover*: the second Envoy
//! opens the same ports (SO_REUSEPORT) and gets all new connections while the first Envoy drains.
//! The methods to try are chosen before anything is changed. Each attempt has a time limit. If all
//! attempts fail, the first Envoy keeps serving.
//!
//! While the second Envoy is taking over, never signal the first Envoy, and never write xDS files.

mod attempt;
mod decide;
mod facts;
mod park;
mod probe;
mod retire;
mod reuseport;
mod sink;
mod steer;

use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub(crate) use self::attempt::{Attempt, OLD_ADMIN};
pub use self::decide::{Answers, RestartFacts, RestartPlan, RestartRefused, decide};
pub(crate) use self::facts::{gather, moves_connections, protocol_of};
pub(crate) use self::park::Parked;
pub(crate) use self::probe::can_steer;
pub(crate) use self::retire::{Retiring, latest_end};
pub(crate) use self::sink::Sink;
pub(crate) use self::steer::{Steering, any as leave_to_the_kernel};

/// Strategy for replacing an Envoy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Hot restart if possible; otherwise, or if it fails, handover.
    #[default]
    Auto,
    /// Take over the sockets, and keep the statistics.
    Hot,
    /// Start a second Envoy on the same ports, then drain the first.
    Handover,
}

/// Method for replacing an Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartMethod {
    /// See [`Strategy::Hot`].
    Hot,
    /// See [`Strategy::Handover`].
    Handover,
}

impl std::fmt::Display for RestartMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Hot => "hot restart",
            Self::Handover => "handover",
        })
    }
}

/// Request to replace an Envoy.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Which methods may be used.
    pub strategy: Strategy,
    /// Bootstrap for the new Envoy, or `None` to use the current bootstrap.
    pub bootstrap: Option<Bytes>,
    /// Configuration that Envoy serves, as static resources. It is validated with the new Envoy
    /// before the restart.
    pub served: Option<Bytes>,
    /// Channel for progress messages.
    pub progress: Option<mpsc::UnboundedSender<String>>,
}

impl Request {
    /// Reports progress.
    pub(crate) fn say(&self, what: impl Into<String>) {
        let what = what.into();
        tracing::info!("restart: {what}");
        if let Some(progress) = &self.progress {
            // The requester may have dropped the receiver.
            let _ = progress.send(what);
        }
    }
}

/// Result of a successful restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restarted {
    /// How Envoy was replaced.
    pub way: RestartMethod,
    /// ID of the previous process.
    pub before: u32,
    /// ID of the new process.
    pub now: u32,
    /// Time from the request until the new Envoy was serving.
    pub took: Duration,
}

/// Why Envoy was not replaced. Unless a variant says otherwise, the previous Envoy keeps serving.
#[derive(Debug, thiserror::Error)]
pub enum RestartError {
    /// A precondition is not met.
    #[error("{0}")]
    Refused(#[from] RestartRefused),
    /// The new Envoy's binary rejects its bootstrap or the current configuration.
    #[error("the new Envoy rejects its {what}: {envoy_words}")]
    Invalid {
        /// Which part is invalid: `bootstrap` or `configuration`.
        what: &'static str,
        /// Error message from Envoy.
        envoy_words: String,
    },
    /// The new Envoy's binary could not be run to validate the configuration.
    #[error("cannot query the new Envoy: {0}")]
    NoVerdict(String),
    /// All attempts failed.
    #[error("{}", .0.join("; "))]
    Failed(Vec<String>),
    /// There is no live Envoy to replace.
    #[error("no Envoy is live; it starts automatically")]
    NotLive,
    /// The supervisor is stopping.
    #[error("the agent is stopping")]
    Stopping,
}
