//! Listeners of Gateways and ListenerSets. They are checked individually and compared with each
//! other.
//!
//! [`check()`] reads the listeners of one object, and `sets` appends the listeners of other
//! objects. [`compare()`] finds conflicts among all listeners that are served together.
//! `termination` looks up certificates, and `filters` resolves the filters that apply to requests.
//! A rejected listener does not affect other listeners. [`hold()`] decides which rejected listeners
//! keep their hostnames.
//!
//! This module does not depend on routes. Conversely, routes attach to a listener regardless of its
//! conditions (`ListenerStatus.attachedRoutes`).

mod check;
mod compare;
mod conflicts;
pub(crate) mod filters;
mod holding;
pub(crate) mod implicit;
mod listener;
pub(crate) mod namespaces;
mod overlaps;
pub(crate) mod protocols;
pub(crate) mod selectors;
pub(crate) mod sets;
pub(crate) mod termination;
mod tls_options;
pub(crate) mod uncovered;

pub(crate) use self::check::check;
pub(crate) use self::compare::{ComparedGateway, compare, compare_certificates};
pub(crate) use self::holding::hold;
pub(crate) use self::listener::{CheckedListener, ListenerOwner, Rank, invalid};
pub(crate) use self::namespaces::NamespaceRule;
pub use self::tls_options::session_ticket_keys;
pub(crate) use self::tls_options::{MAX_VERSION, MIN_VERSION};
pub use self::uncovered::{UncoveredHostname, UncoveredHostnames};
