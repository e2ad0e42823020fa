//! Writes statuses to the objects, from the results of resolution and the hosts' reports.
//!
//! The desired status ([`compose`]), the stored one, and the change between them ([`patch`]) are
//! values; only the `reporter` writes. A write carries the version of the object it was computed
//! from, so that no other controller's entry in a shared list is lost. Only our entries and
//! conditions change, and nothing is written that is already there.

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
