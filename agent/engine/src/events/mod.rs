//! Records this host's history: the differences between successive reports. Events must never
//! contain any part of a key, and recording must never prevent serving.

mod facts;
mod recorder;
mod store;

use std::fmt;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub(super) use self::recorder::Recorder;
pub use self::store::list;

/// HTTP path at which the agent lists its [`HostEvent`]s.
pub const EVENTS_PATH: &str = "/events";

/// Entry in this host's history. Contains no part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostEvent {
    /// Increases with every event.
    pub number: u64,
    /// When the agent noticed the event.
    pub time: Timestamp,
    pub(crate) event: HostEventKind,
    /// `namespace/name`, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gateway: String,
    /// Name of the affected part, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) about: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    /// True if a previously reported condition has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ended: bool,
}

impl HostEvent {
    /// Returns the table columns: time, event, Gateway, and affected part with message.
    /// The text is not escaped for terminals.
    pub fn cells(&self) -> [String; 4] {
        let Self {
            number: _,
            time,
            event,
            gateway,
            about,
            message,
            ended,
        } = self;
        let (over, more) = if *ended {
            (" (over)", "")
        } else {
            ("", message.as_str())
        };
        let words = [about.as_str(), more];
        let words: Vec<&str> = words.into_iter().filter(|part| !part.is_empty()).collect();
        [
            format!("{time:.0}"),
            format!("{event}{over}"),
            gateway.clone(),
            words.join(": "),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum HostEventKind {
    AgentStarted,
    SourceLost,
    SourceProblem,
    GatewayServed,
    EnvoyStarted,
    /// Envoy is not running, even though it should be.
    EnvoyDown,
    /// Envoy has accepted a revision.
    RevisionApplied,
    /// Envoy rejects a revision as a whole.
    RevisionRefused,
    /// A revision is held because it removes too much, or drains connections.
    RevisionHeld,
    PartRefused,
    /// A listener does not present its newest certificate.
    CertificateUnshown,
    /// A Gateway serves a different certificate than before.
    CertificateChanged,
    Draining,
    /// For example, a certificate expires soon or the access log cannot be written.
    Warning,
    /// Too many events occurred at once, so some were omitted.
    MoreOmitted,
}

impl fmt::Display for HostEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

pub(super) fn answer(state_dir: &Path) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&list(state_dir)?)?)
}
