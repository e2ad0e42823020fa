//! Writes objects' statuses. A write changes only our entries and conditions, and fails if the
//! object has changed since the status was computed.

mod agent_objects;
mod agents;
mod backlog;
mod changes;
mod compose;
mod contested;
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

pub(crate) use self::events::{CertificateWarnings, Events, MAX_UNREPORTED};
pub(crate) use self::presence::AllPresences;
pub(crate) use self::reporter::StatusReporter;
