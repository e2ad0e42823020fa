//! Retry policies of routes, and the default policy of virtual hosts.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::route::v3::{RetryPolicy, retry_policy::RetryBackOff};
use sesame_proto::schema::Retry;
use sesame_proto::schema::retry::Condition;

use crate::wrappers;

/// No backend has received the request, so retrying is safe for any method.
const CONNECTION: &str = "connect-failure,refused-stream,reset-before-request";

/// For routes with their own policy, even if the backend received the request. `HTTPRouteRetry`
/// says: "retry on connection errors (disconnect, reset, timeout, TCP failure)".
const RESET: &str = "connect-failure,refused-stream,reset";

/// For backends that must not process a request twice (Gateway API 1.7,
/// `HTTPRouteRetryConnectionError`). `unavailable` covers gRPC backends that have not started yet.
const UNPROCESSED: &str = "connect-failure,refused-stream,reset-before-request,unavailable";

const ATTEMPTS: u32 = 2;

/// While a retry waits, Envoy fails the request if its body exceeds the buffer. Therefore, the
/// first retry follows immediately, on another endpoint.
const BACKOFF_MS: u64 = 1;

/// Hides vanished endpoints and closed pooled connections from clients.
pub(crate) fn of_connections() -> RetryPolicy {
    RetryPolicy {
        retry_on: CONNECTION.to_owned(),
        num_retries: wrappers::uint32(ATTEMPTS),
        retry_back_off: Some(backoff(BACKOFF_MS)),
        ..Default::default()
    }
}

/// Each wait is random, up to a limit that doubles from `base_ms` to at most ten times `base_ms`.
fn backoff(base_ms: u64) -> RetryBackOff {
    RetryBackOff {
        base_interval: wrappers::milliseconds(base_ms),
        max_interval: None,
    }
}

/// Returns `None` if the default applies. `backend_timeout_ms` is the timeout of each attempt; 0
/// disables it.
pub(crate) fn render(retry: Option<&Retry>, backend_timeout_ms: u64) -> Option<RetryPolicy> {
    let mut policy = match retry {
        None if backend_timeout_ms == 0 => return None,
        None => of_connections(),
        // Otherwise, the virtual host's policy would apply.
        Some(Retry { attempts: 0, .. }) => RetryPolicy {
            num_retries: wrappers::uint32(0),
            ..Default::default()
        },
        Some(Retry {
            statuses,
            attempts,
            backoff_ms,
            unprocessed_only,
            conditions,
        }) => RetryPolicy {
            retry_on: {
                let failures = match (conditions.as_slice(), *unprocessed_only) {
                    ([], true) => UNPROCESSED.to_owned(),
                    ([], false) => RESET.to_owned(),
                    (conditions, _) => with_conditions(conditions),
                };
                if statuses.is_empty() || !conditions.is_empty() {
                    failures
                } else {
                    format!("{failures},retriable-status-codes")
                }
            },
            retriable_status_codes: statuses.clone(),
            num_retries: wrappers::uint32((*attempts).min(Retry::MAX_ATTEMPTS)),
            retry_back_off: (*backoff_ms > 0)
                .then(|| backoff((*backoff_ms).max(Retry::LEAST_BACKOFF_MS))),
            ..Default::default()
        },
    };
    if backend_timeout_ms > 0 {
        policy.per_try_timeout = wrappers::milliseconds(backend_timeout_ms);
    }
    Some(policy)
}

fn with_conditions(conditions: &[i32]) -> String {
    let known = conditions
        .iter()
        .filter_map(|it| Condition::try_from(*it).ok());
    let names = known.filter_map(Condition::name);
    let mut all: BTreeSet<String> = CONNECTION.split(',').map(str::to_owned).collect();
    all.extend(names);
    Vec::from_iter(all).join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_of_a_route_are_bounded() {
        let retry = Retry {
            statuses: vec![500],
            attempts: 1_000_000,
            backoff_ms: 1,
            unprocessed_only: false,
            conditions: Vec::new(),
        };
        let policy = render(Some(&retry), 0).expect("a policy");
        assert_eq!(policy.num_retries, wrappers::uint32(15));
        let backoff = policy.retry_back_off.expect("a backoff");
        assert_eq!(backoff.base_interval, wrappers::milliseconds(25));
    }

    #[test]
    fn conditions_add_to_failures_before_requests() {
        let retry = Retry {
            attempts: 1,
            conditions: vec![1, 3, 99, 3],
            ..Retry::default()
        };
        let policy = render(Some(&retry), 0).expect("a policy");
        let expected = "5xx,connect-failure,refused-stream,reset,reset-before-request";
        assert_eq!(policy.retry_on, expected);
    }

    #[test]
    fn unprocessed_only_retries_exclude_processed_requests() {
        let retry_on = |unprocessed_only, statuses: &[u32]| {
            let retry = Retry {
                statuses: statuses.to_vec(),
                attempts: 1,
                backoff_ms: 0,
                unprocessed_only,
                conditions: Vec::new(),
            };
            render(Some(&retry), 0).map(|policy| policy.retry_on)
        };
        assert_eq!(retry_on(false, &[]).as_deref(), Some(RESET));
        assert_eq!(retry_on(true, &[]).as_deref(), Some(UNPROCESSED));
        let with_statuses = retry_on(true, &[503]).expect("a policy");
        assert!(
            with_statuses.ends_with(",retriable-status-codes"),
            "{with_statuses}"
        );
        assert!(
            !with_statuses.split(',').any(|failure| failure == "reset"),
            "{with_statuses}"
        );
    }
}
