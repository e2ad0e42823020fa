//! Renders a snapshot as the resources that Envoy loads: listeners, route tables, clusters,
//! endpoints and secrets.
//!
//! Rendering is a pure function of a snapshot, its private keys and the host's options, such as the
//! addresses to listen on. The result contains encoded resources by name, ready to be written to
//! the files that Envoy watches. If Envoy cannot express a part of a snapshot, only that part is
//! left out, and it is reported as a [`RenderProblem`].
//!
//! ```
//! use sesame_proto::schema::{Listener, Port, RouteTable, Snapshot};
//! use sesame_render::{RenderOptions, render};
//!
//! let listener = Listener {
//!     name: "Gateway/default/edge/listeners/http".to_owned(),
//!     route_table: "http/80".to_owned(),
//!     ..Listener::default()
//! };
//! let snapshot = Snapshot {
//!     gateway: "Gateway/default/edge".to_owned(),
//!     ports: vec![Port { port: 80, listeners: vec![listener], ..Port::default() }],
//!     route_tables: vec![RouteTable { name: "http/80".to_owned(), ..RouteTable::default() }],
//!     ..Snapshot::default()
//! };
//! let rendered = render(&snapshot, &[], &options());
//! assert_eq!(rendered.problems, []);
//! assert_eq!(rendered.listeners[0].name, "tcp/127.0.0.1/80");
//! assert_eq!(rendered.route_tables[0].name, "http/80");
//!
//! /// Options for a host that listens on the loopback.
//! fn options() -> RenderOptions {
//!     // ...
//! #   RenderOptions {
//! #       addresses: vec![std::net::IpAddr::from([127, 0, 0, 1])],
//! #       port_map: Default::default(),
//! #       subscription_budget: 100,
//! #       first_in_files: Default::default(),
//! #       limits: Default::default(),
//! #       layout: sesame_render::layout::XdsLayout::new("/run/sesame/xds"),
//! #       admin_socket: "/run/sesame/admin.sock".into(),
//! #       trusted_hops: 0,
//! #       fleet_hosts: 1,
//! #       system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
//! #       endpoints: Default::default(),
//! #       session_tickets: false,
//! #       stand_in_tickets: None,
//! #       access_log: None,
//! #       retained: Default::default(),
//! #   }
//! }
//! ```
//!
//! The same snapshot produces the same bytes in every process. Each resource is encoded as soon as
//! it is built, because the unencoded form of five thousand clusters is many times larger.
//!
//! Never read a file, a clock or the environment in this crate. Rendering as a whole must never
//! fail.

#![cfg_attr(test, allow(clippy::too_many_lines))]

mod access_log;
mod bootstrap;
mod budget;
mod changes;
mod clusters;
mod collectors;
mod config_sources;
pub mod connection_ids;
mod context;
pub mod drains;
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
pub mod xds;

pub use bootstrap::bootstrap;
pub use bootstrap::static_bootstrap::static_bootstrap;
pub use budget::{MAX_ENDPOINT_FILES, MIN_SUBSCRIPTIONS};
pub use changes::{backends_after, endpoints_after, routes_after};
pub use clusters::fleet::{CLUSTER as FLEET_CLUSTER, members as fleet_members};
pub use clusters::shares::{none as no_shares, only_chooses, scarcity};
pub use context::{
    AccessLogSink, EndpointRules, RenderOptions, RetainedAuthorities, StandInTickets,
};
pub use l4::weights::REFUSED_CLUSTER;
pub use rendered::{RenderProblem, Rendered, Resource};
pub use tls::secrets::session_ticket_keys;
pub use whole::{render, render_encoded};
