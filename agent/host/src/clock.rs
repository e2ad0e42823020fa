//! Waits for a point in time.

use std::time::Instant;

/// Sleeps forever if `instant` is `None`.
pub async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
