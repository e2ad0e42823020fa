//! Listeners of Gateways and ListenerSets, checked one by one and against each other.
//!
//! [`check()`] reads the listeners of one object, `sets` appends those of ListenerSets, [`compare()`] finds conflicts among
//! all listeners of a Gateway and of those that are served together with it, and `termination` looks up certificates
//! and `filters` what requests are to pass. A listener that is refused harms no other one; [`hold()`] says which of them keep
//! their hostnames all the same.
//! Nothing here knows routes: whether a route attaches does not depend on the state of the listener
//! (`ListenerStatus.attachedRoutes`).

mod check;
mod compare;
mod conflicts;
pub(crate) mod filters;
mod holding;
mod listener;
pub(crate) mod namespaces;
mod overlaps;
pub(crate) mod protocols;
pub(crate) mod selectors;
pub(crate) mod sets;
pub(crate) mod termination;
mod tls_options;

pub(crate) use self::check::check;
pub(crate) use self::compare::{ComparedGateway, compare, compare_certificates};
pub(crate) use self::holding::hold;
pub(crate) use self::listener::{CheckedListener, ListenerOwner, Rank, invalid};
pub use self::tls_options::session_ticket_keys;
