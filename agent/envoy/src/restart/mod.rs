//! Replaces a running Envoy without dropping requests.
//!
//! *Hot*: the second Envoy takes over sockets and statistics through Envoy's hot restart protocol.
//! *Handover*: the second Envoy opens the same ports (SO_REUSEPORT) while the first drains. If all
//! attempts fail, the first Envoy keeps serving.
//!
//! During a takeover, never signal the first Envoy, and never write xDS files.

mod attempt;
mod decide;
mod facts;
#[cfg(test)]
mod holder;
mod park;
mod probe;
mod quic;
mod retire;
mod reuseport;
mod sink;
mod steer;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub(crate) use self::attempt::{Attempt, OLD_ADMIN};
pub use self::decide::{Responsiveness, RestartFacts, RestartPlan, RestartRefused, decide};
pub use self::facts::{gather, moves_connections, protocol_of};
pub use self::park::Parked;
pub use self::probe::can_steer;
pub(crate) use self::quic::{QuicSinks, QuicSteering, record_order};
pub(crate) use self::retire::{Retiring, latest_end};
pub(crate) use self::sink::Sink;
pub(crate) use self::steer::{Steering, reset_steering};

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
    /// Allowed methods.
    pub strategy: Strategy,
    /// New bootstrap, or `None` for the current one.
    pub bootstrap: Option<Bytes>,
    /// Current configuration as static resources, to validate first.
    pub served: Option<Bytes>,
    /// Addresses of HTTP/3 listeners.
    pub quic: BTreeSet<SocketAddr>,
    /// True if Envoy may have open HTTP/3 connections, so a hot restart could block it.
    pub serves_http3: bool,
    /// Channel for progress messages.
    pub progress: Option<mpsc::UnboundedSender<String>>,
}

impl Request {
    pub(crate) fn report(&self, what: impl Into<String>) {
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
    /// Previous process ID.
    pub before: u32,
    /// New process ID.
    pub now: u32,
    /// Time until the new Envoy was serving.
    pub took: Duration,
}

/// Why Envoy was not replaced. The previous Envoy keeps serving unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RestartError {
    /// A precondition is not met.
    #[error("{0}")]
    Refused(#[from] RestartRefused),
    /// The new binary rejects its bootstrap or the current configuration.
    #[error("the new Envoy rejects its {what}: {envoy_words}")]
    Invalid {
        /// `bootstrap` or `configuration`.
        what: &'static str,
        /// Envoy's error message.
        envoy_words: String,
    },
    /// The new binary could not validate the configuration.
    #[error("cannot query the new Envoy: {0}")]
    NoVerdict(String),
    /// All attempts failed.
    #[error("{}", .0.join("; "))]
    Failed(Vec<String>),
    /// No live Envoy to replace.
    #[error("no Envoy is live; the agent starts one automatically")]
    NotLive,
    /// The supervisor is stopping.
    #[error("the agent is stopping")]
    Stopping,
}
