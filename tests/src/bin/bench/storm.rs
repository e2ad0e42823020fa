//! The churn that both benchmarks make: how fast it is, and how its threads end.

use std::time::Duration;

/// Time between two changes of routes.
pub(crate) const ROUTE_CHANGES: Duration = Duration::from_millis(500);
/// Time between two changes of endpoints.
pub(crate) const ENDPOINT_CHANGES: Duration = Duration::from_millis(10);

/// Returns the outcome of a thread; an error if it panicked.
pub(crate) fn joined<T>(outcome: std::thread::Result<anyhow::Result<T>>) -> anyhow::Result<T> {
    outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the churn panicked")))
}
