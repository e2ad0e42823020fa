//! Rendering: a pure function from a snapshot to the resources that Envoy loads.
//!
//! The same snapshot gives the same bytes in every process. Each resource is encoded as soon as it
//! is built, because the unencoded form of five thousand clusters is many times as large. Parts of
//! a snapshot that Envoy cannot express are left out with a [`RenderProblem`]; all others are
//! rendered.
//!
//! Never read a file, a clock or the environment here, and never fail as a whole.

mod access_log;
mod bootstrap;
mod budget;
mod changes;
mod clusters;
mod collectors;
mod config_sources;
mod context;
pub mod dump;
mod header_checks;
mod http;
mod l4;
pub mod layout;
pub mod limits;
mod listeners;
mod rendered;
mod tls;
mod whole;
mod wrappers;

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real Envoy is asked"
)]
mod tests;

pub use bootstrap::bootstrap;
pub use bootstrap::static_bootstrap::static_bootstrap;
pub use budget::MOST_ENDPOINT_FILES;
pub use changes::{backends_after, endpoints_after, routes_after};
pub use clusters::shares::{none as no_shares, scarcity};
pub use context::{
    AccessLogSink, EndpointRules, RenderOptions, RetainedAuthorities, StandInTickets,
};
pub use l4::weights::REFUSED_CLUSTER;
pub use rendered::{RenderProblem, Rendered, Resource};
pub use tls::secrets::session_ticket_keys;
pub use whole::{render, render_encoded};
