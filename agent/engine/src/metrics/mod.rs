//! Exports metrics for the agent and Envoy, in Prometheus's text format.
//!
//! Must never expose Envoy's admin interface to the network. Must never reveal anything about a key
//! except the name of its Secret and the expiry of its certificate.

mod backend_families;
mod backends;
mod budgets;
mod counts;
mod families;
mod open;
mod policies;
#[cfg(test)]
mod reference;
mod routes;
mod scrape;
mod serve;
mod traffic;
mod writer;

pub(super) use self::counts::{ApplyCounts, ApplyOutcome, ProcessReason};
pub(super) use self::open::{OpenConnections, open_connections};
pub(super) use self::serve::{METRICS_PATH, MetricsSource, PageSource, serve};
