//! Trying again.

use envoy_types::pb::envoy::config::route::v3::{RetryPolicy, retry_policy::RetryBackOff};
use sesame_proto::schema::Retry;

use super::sessions;
use crate::wrappers;

/// Failures before a backend saw the request. Safe to repeat for any method.
const CONNECTION: &str = "connect-failure,refused-stream,reset-before-request";

/// Failures that a retry of a route adds: the connection broke or the try took too long, whether or not the backend
/// saw the request (`HTTPRouteRetry`: "retry on connection errors (disconnect, reset, timeout, TCP failure)").
const RESET: &str = "connect-failure,refused-stream,reset";

/// Number of retries, where nobody says.
const ATTEMPTS: u32 = 2;

/// Returns the policy of every virtual host: an endpoint that is gone but not yet out of the list, or a pooled
/// connection that the backend just closed, costs a client nothing. Retries of a route replace it.
pub(crate) fn of_connections() -> RetryPolicy {
    RetryPolicy {
        retry_on: CONNECTION.to_owned(),
        num_retries: wrappers::uint32(ATTEMPTS),
        ..Default::default()
    }
}

/// Returns a route's own policy, if it needs one. `backend_timeout_ms` bounds each try; 0 does not. The clusters of sessions know only
/// so many tries.
pub(crate) fn render(
    retry: Option<&Retry>,
    backend_timeout_ms: u64,
    session: bool,
) -> Option<RetryPolicy> {
    let mut policy = match retry {
        None if backend_timeout_ms == 0 => return None,
        None => of_connections(),
        // Said outright, or the virtual host's own would hold.
        Some(Retry { attempts: 0, .. }) => RetryPolicy {
            num_retries: wrappers::uint32(0),
            ..Default::default()
        },
        Some(Retry {
            statuses,
            attempts,
            backoff_ms,
        }) => RetryPolicy {
            retry_on: if statuses.is_empty() {
                RESET.to_owned()
            } else {
                format!("{RESET},retriable-status-codes")
            },
            retriable_status_codes: statuses.clone(),
            num_retries: wrappers::uint32(if session {
                (*attempts).min(sessions::MOST_RETRIES)
            } else {
                *attempts
            }),
            // Envoy waits a random time up to a bound that grows from this one: the least it can be told.
            retry_back_off: (*backoff_ms > 0).then(|| RetryBackOff {
                base_interval: wrappers::milliseconds(*backoff_ms),
                max_interval: None,
            }),
            ..Default::default()
        },
    };
    if backend_timeout_ms > 0 {
        policy.per_try_timeout = wrappers::milliseconds(backend_timeout_ms);
    }
    Some(policy)
}
