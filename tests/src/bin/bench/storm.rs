//! Change rates during the churn in both benchmarks, and a helper to join its threads.

use std::time::Duration;

/// Interval between route changes.
pub(crate) const ROUTE_CHANGES: Duration = Duration::from_millis(500);
/// Interval between endpoint changes.
pub(crate) const ENDPOINT_CHANGES: Duration = Duration::from_millis(10);

/// Returns a thread's result, or an error if it panicked.
pub(crate) fn joined<T>(outcome: std::thread::Result<anyhow::Result<T>>) -> anyhow::Result<T> {
    outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the churn panicked")))
}
