//! Exponential backoff between failed attempts. Callers do the sleeping, and add jitter if needed.

use std::time::Duration;

/// Doubles the delay after each failed attempt, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Creates a backoff whose delays grow from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// Records a failure, and returns the delay before the next attempt.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.doubled(self.failures);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// Resets the delay after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the first delay, doubled `doublings` times up to the limit.
    pub fn doubled(self, doublings: u32) -> Duration {
        let factor = 2_u32.saturating_pow(doublings);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nanos() -> impl Strategy<Value = Duration> {
        prop_oneof![0..1000_u64, any::<u64>()].prop_map(Duration::from_nanos)
    }

    #[test]
    fn pauses_double_to_limit_and_restart_after_reset() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(3));
        let pauses = [1, 2, 3, 3].map(|_| backoff.next_pause());
        assert_eq!(pauses, [1, 2, 3, 3].map(seconds));
        backoff.reset();
        assert_eq!(backoff.next_pause(), seconds(1));
    }

    proptest! {
        #[test]
        fn each_pause_is_twice_the_last_or_longest(
            first in nanos(),
            longest in nanos(),
            doublings in prop_oneof![0..40_u32, any::<u32>()],
        ) {
            let backoff = Backoff::new(first, longest);
            let (pause, next) = (
                backoff.doubled(doublings),
                backoff.doubled(doublings.saturating_add(1)),
            );
            prop_assert!(pause <= longest);
            // The factor saturates at `u32::MAX`, so later delays might not double.
            if doublings < 31 {
                prop_assert_eq!(next, pause.saturating_mul(2).min(longest));
            } else {
                prop_assert!(next >= pause);
            }
        }

        #[test]
        fn pauses_in_turn_equal_counted_ones(
            first in nanos(),
            longest in nanos(),
            resets in prop::collection::vec(any::<bool>(), 0..50),
        ) {
            let mut backoff = Backoff::new(first, longest);
            let mut failures = 0;
            for is_reset in resets {
                if is_reset {
                    backoff.reset();
                    failures = 0;
                }
                prop_assert_eq!(backoff.next_pause(), Backoff::new(first, longest).doubled(failures));
                failures += 1;
            }
        }
    }
}
