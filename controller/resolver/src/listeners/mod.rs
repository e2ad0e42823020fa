//! Listeners of Gateways and ListenerSets.
//!
//! [`check()`] checks them individually, [`compare()`] finds conflicts, and [`hold()`] decides
//! which rejected listeners keep their hostnames. Nothing here depends on routes, because routes
//! attach regardless of a listener's conditions.

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
