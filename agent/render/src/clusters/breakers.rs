//! Circuit breakers: limits on this host's connections and requests to a backend.
//!
//! Envoy's default of 1,024 requests would cause 503 responses under load. Instead, the heap size
//! limits pending requests, and [`super::shares`] limits connections. Until Envoy has read the
//! shares file, its default connection limit applies.

use envoy_types::pb::envoy::config::cluster::v3::CircuitBreakers;
use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::{
    Thresholds, thresholds::RetryBudget as EnvoyBudget,
};
use sesame_proto::schema::{CircuitBreaker, RetryBudget};

use super::balance::percent;
use crate::limits::Limits;
use crate::wrappers;

const MAX_IN_FLIGHT: u32 = 100_000;
/// Maximum number of concurrent retries. Envoy's default of 3 would cause errors during a rolling
/// restart.
const MAX_RETRIES: u32 = 1_024;

pub(super) fn render(limits: &Limits, breaker: Option<&CircuitBreaker>) -> CircuitBreakers {
    let unlimited = CircuitBreaker::default();
    let CircuitBreaker {
        max_connections,
        max_pending_requests,
        max_requests,
        max_retries,
        max_connections_per_endpoint,
        retry_budget,
    } = breaker.unwrap_or(&unlimited);
    let own = |value: u32| Some(value).filter(|it| *it > 0);
    // No configuration may exceed the limits that protect the host.
    let least = |value: u32, limit: u32| wrappers::uint32(own(value).unwrap_or(limit).min(limit));
    let per_endpoint = own(*max_connections_per_endpoint).map(|most| Thresholds {
        max_connections: wrappers::uint32(most),
        ..Default::default()
    });
    CircuitBreakers {
        thresholds: vec![Thresholds {
            max_connections: own(*max_connections).and_then(wrappers::uint32),
            max_pending_requests: least(*max_pending_requests, limits.waiting()),
            max_requests: least(*max_requests, MAX_IN_FLIGHT),
            max_retries: least(*max_retries, MAX_RETRIES),
            retry_budget: retry_budget.map(budget),
            ..Default::default()
        }],
        per_host_thresholds: per_endpoint.into_iter().collect(),
    }
}

fn budget(budget: RetryBudget) -> EnvoyBudget {
    let RetryBudget {
        percent: of_requests,
        min_retries,
    } = budget;
    EnvoyBudget {
        budget_percent: percent(of_requests.clamp(1, 100)),
        min_retry_concurrency: wrappers::uint32(min_retries.min(RetryBudget::MAX)),
        ..Default::default()
    }
}
