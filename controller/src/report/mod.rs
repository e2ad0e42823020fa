//! Writes objects' statuses, computed from the resolution result and the hosts' reports.
//!
//! The desired status ([`compose`]), the stored status, and the change between them ([`patch`]) are
//! plain values; only the `reporter` writes. Each write fails if the object has changed since it
//! was computed, so that other controllers' entries in shared lists are not lost. Only our entries
//! and conditions are changed. A status that is already stored is not written again.

mod agent_objects;
mod agents;
mod backlog;
mod changes;
mod compose;
mod endpoints;
mod events;
mod fleet;
mod liveness;
mod nodes;
mod pace;
mod patch;
mod presence;
mod report_refusal;
mod reporter;
mod revisions;
mod status_page;
mod transitions;
mod trim;
mod write;

pub(crate) use self::events::{CertificateWarnings, Events, MAX_UNTOLD};
pub(crate) use self::presence::AllPresences;
pub(crate) use self::reporter::StatusReporter;
