//! Waiting for a moment.

use std::time::Instant;

/// Sleeps until `instant`; for ever if there is none.
pub(crate) async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
