//! Rates of change during the churn in both benchmarks, and a helper for joining threads.

use std::time::Duration;

pub(crate) const ROUTE_CHANGES: Duration = Duration::from_millis(500);
pub(crate) const ENDPOINT_CHANGES: Duration = Duration::from_millis(10);

pub(crate) fn joined<T>(outcome: std::thread::Result<anyhow::Result<T>>) -> anyhow::Result<T> {
    outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("a churn thread panicked")))
}
