//! Computes backoff for retries.

use std::time::Duration;

use kube::runtime::utils;
use sesame_backoff::Backoff;
use tokio::time::Instant;

/// Backoff for reads. A starting API server denies requests until it has loaded the RBAC rules, so
/// a second attempt is often needed.
pub(crate) const READ_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(100), Duration::from_secs(3));

pub(crate) struct WatchBackoff(pub(crate) Backoff);

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0.next_pause())
    }
}

impl utils::Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

#[derive(Clone, Debug)]
pub(crate) struct NextAttempt {
    pub(crate) at: Instant,
    backoff: Backoff,
}

impl NextAttempt {
    /// `before` is the failed attempt, or `None` if the first attempt failed.
    pub(crate) fn after(before: Option<&Self>, backoff: Backoff, now: Instant) -> Self {
        let mut backoff = before.map_or(backoff, |before| before.backoff);
        Self {
            at: now + backoff.next_pause(),
            backoff,
        }
    }

    /// Unlike [`Self::after`], does not lengthen later delays.
    pub(crate) fn soon(pause: Duration, backoff: Backoff, now: Instant) -> Self {
        Self {
            at: now + pause,
            backoff,
        }
    }
}
