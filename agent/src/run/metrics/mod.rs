//! Metrics of the agent and of its Envoys, as text that Prometheus reads.
//!
//! Envoy's own statistics reach nobody but through here: a small set with stable names, by Gateway, port and
//! backend, and by route where that is asked for. Must never open
//! Envoy's admin interface to the network, or show anything of a key but the name of its Secret and when it expires.

mod backend_families;
mod backends;
mod budgets;
mod counts;
mod families;
#[cfg(test)]
mod reference;
mod routes;
mod scrape;
mod serve;
mod traffic;
mod writer;

pub(super) use self::counts::{ApplyCounts, ApplyOutcome, ProcessReason};
pub(super) use self::serve::{KnownBackends, METRICS_PATH, MetricsSource, PageSource, serve};
