//! Limits how often an object's status is written and how often reports are summarized.

use std::time::Duration;

use tokio::time::Instant;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    last: Instant,
    pause: Duration,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: now,
            pause: SHORTEST,
        }
    }

    pub(super) fn next(&self) -> Instant {
        self.last + self.pause
    }

    /// Lengthens the interval if this write came soon after the pace allowed it.
    pub(super) fn wrote(&mut self, now: Instant) {
        let busy = now < self.next() + self.pause;
        self.pause = if busy {
            (self.pause * 2).min(LONGEST)
        } else {
            SHORTEST
        };
        self.last = now;
    }

    /// Returns true if the pace can be discarded.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now > self.next() + LONGEST
    }
}

/// Summaries use at most 1/`SHARE` of the time, but none is delayed by more than [`LONGEST`].
const SHARE: u32 = 20;

/// A summary examines all hosts of a Gateway, so a larger fleet is summarized less often.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SummaryPace {
    next: Option<Instant>,
}

impl SummaryPace {
    pub(super) fn allows(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// Returns `None` if the summary may start now.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn summed(&mut self, start: Instant, end: Instant) {
        let took = end.saturating_duration_since(start);
        self.next = Some(end + (took * (SHARE - 1)).min(LONGEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_summaries_are_spaced_up_to_one_second() {
        let start = Instant::now();
        let mut pace = SummaryPace::default();
        assert!(pace.allows(start));
        let millis = Duration::from_millis;
        pace.summed(start, start + millis(10));
        assert!(!pace.allows(start + millis(199)));
        assert!(pace.allows(start + millis(200)));
        pace.summed(start, start + millis(500));
        assert!(pace.allows(start + millis(1500)));
    }

    #[test]
    fn busy_object_is_written_once_per_second() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut writes = 1;
        let mut now = start;
        while pace.next() < start + Duration::from_secs(10) {
            now = pace.next();
            pace.wrote(now);
            writes += 1;
        }
        assert!((10..=14).contains(&writes), "{writes}");
        let rested = now + Duration::from_secs(5);
        pace.wrote(rested);
        assert_eq!(pace.next(), rested + SHORTEST);
        assert!(!pace.is_over(rested));
        assert!(pace.is_over(rested + Duration::from_secs(2)));
    }
}
