//! The past of this host: revisions applied, refused and held, Envoys started, certificates, a source that was lost.
//!
//! Events are the differences between two looks at what the agent reports, so they need nobody to tell them, and what changed
//! while no agent ran is among them. They are kept in the state directory, within bounds. They must hold nothing of a key, and
//! never be a reason not to serve.

mod facts;
mod recorder;
mod store;

use std::fmt;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub(super) use self::recorder::Recorder;
pub(crate) use self::store::list;

/// Path that is answered on the agent's socket.
pub(crate) const EVENTS_PATH: &str = "/events";

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostEvent {
    /// Number of the event; each has a higher one than those before it.
    pub(crate) number: u64,
    /// Time at which the agent saw it.
    pub(crate) time: Timestamp,
    /// Kind of the event.
    pub(crate) event: HostEventKind,
    /// `namespace/name` of the Gateway; empty for what concerns the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) gateway: String,
    /// Name of what it is about, if that is not the Gateway as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) about: String,
    /// More of it, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    /// True if it is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ended: bool,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum HostEventKind {
    /// The agent has started.
    AgentStarted,
    /// The source cannot be read.
    SourceLost,
    /// Something is wrong in what the source provides.
    SourceProblem,
    /// A Gateway is served by this host.
    GatewayServed,
    /// An Envoy has come into service.
    EnvoyStarted,
    /// Envoy does not run, though it should.
    EnvoyDown,
    /// Envoy has accepted a revision.
    RevisionApplied,
    /// Envoy refuses a revision as a whole.
    RevisionRefused,
    /// A revision waits, because it removes too much.
    RevisionHeld,
    /// Envoy refuses a part, which is left out.
    PartRefused,
    /// A listener does not show its newest certificate.
    CertificateUnshown,
    /// Another certificate is served.
    CertificateChanged,
    /// The Gateway is being drained.
    Draining,
    /// The host should be looked at: a certificate that expires, an access log that cannot be written.
    Warning,
    /// More has happened at once than is kept.
    MoreOmitted,
}

impl fmt::Display for HostEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Returns the events of a state directory as JSON.
pub(super) fn answer(state_dir: &Path) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&list(state_dir)?)?)
}
