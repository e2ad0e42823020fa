//! Pauses before something is tried again: growing, bounded, and never the same on all hosts.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);

/// The back-off of one thing that fails.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Starts again with the shortest pause, after a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the pause after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let grown = FIRST.saturating_mul(1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        jittered(grown.min(LONGEST))
    }
}

/// Returns a random duration from three quarters to five quarters of `duration`.
pub(crate) fn jittered(duration: Duration) -> Duration {
    // A new hasher has new keys: random enough to keep hosts apart.
    let random = u32::try_from(RandomState::new().hash_one(0) % 512).unwrap_or(256);
    duration * (768 + random) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_start_again() {
        let mut backoff = Backoff::default();
        assert!(backoff.next() < Duration::from_millis(300));
        let last = (0..100).map(|_| backoff.next()).last();
        let bounds = Duration::from_secs(20)..Duration::from_secs(40);
        assert!(last.is_some_and(|pause| bounds.contains(&pause)));
        backoff.reset();
        assert!(backoff.next() < Duration::from_millis(300));
    }
}
