//! Statuses: what resolution judged and what the hosts say, written to the objects.
//!
//! What is to be said ([`said`]), what is stored ([`stored`]) and the change between the two ([`patch`]) are values;
//! only the `reporter` writes. A write carries the version of the object that it was made from, so that nothing of
//! another controller's is lost: lists of parents are shared. Only entries and conditions of ours are touched, and
//! nothing is written that is already there.

mod agents;
mod events;
mod hosts;
mod judged;
mod kept;
mod nodes;
mod pace;
mod patch;
mod reporter;
mod said;
mod silence;
mod stored;
mod write;

pub(crate) use self::events::{Events, Expiring};
pub(crate) use self::judged::{Judged, Rejudged};
pub(crate) use self::reporter::Reporter;
pub(crate) use self::stored::Stored;
