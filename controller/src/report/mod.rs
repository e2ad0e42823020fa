//! Writes statuses to the objects, made from what resolution decided and what the hosts report.
//!
//! The status that an object should have ([`compose`]), the one that is stored and the change between the two ([`patch`])
//! are values; only the `reporter` writes. A write carries the version of the object that it was made from, so that nothing of
//! another controller's is lost: lists of parents are shared. Only entries and conditions of ours are touched, and
//! nothing is written that is already there.

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
mod status_page;
mod transitions;
mod trim;
mod write;

pub(crate) use self::events::{Events, Expiring, MAX_UNTOLD};
pub(crate) use self::presence::AllPresences;
pub(crate) use self::reporter::StatusReporter;
