//! Pace of changes that keep coming: Envoy's main thread spends a limited share of its time on them, so that the batch that waits
//! for its turn grows with what a change costs.
//!
//! Pure: moments and costs in, moments out. Must never delay a change that comes alone.

use std::time::{Duration, Instant};

/// Time of Envoy's main thread that changes may take at once, before they wait for each other.
const BURST: Duration = Duration::from_millis(250);

/// Pace of the changes of one Envoy.
#[derive(Clone, Debug)]
pub(super) struct Pacing {
    /// Percentage of its time that Envoy's main thread spends on changes at most, if they keep coming.
    percent: u8,
    /// Time that it had spent beyond that share, at the moment `at`.
    debt: Duration,
    at: Instant,
}

impl Pacing {
    /// Starts without debt.
    pub(super) fn new(percent: u8, now: Instant) -> Self {
        Self {
            percent: percent.max(1),
            debt: Duration::ZERO,
            at: now,
        }
    }

    /// Changes the share from now on.
    pub(super) fn set_percent(&mut self, percent: u8, now: Instant) {
        self.debt = self.debt(now);
        self.at = now;
        self.percent = percent.max(1);
    }

    /// Takes note of what a change has cost.
    pub(super) fn note(&mut self, cost: Duration, now: Instant) {
        // Nobody waits longer than for one such change.
        self.debt = (self.debt(now) + cost).min(BURST + cost);
        self.at = now;
    }

    /// Returns the moment at which the next change may go; none if it may go now.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let beyond = self.debt(now).checked_sub(BURST)?;
        let pause = beyond * 100 / u32::from(self.percent);
        (self.percent < 100 && !pause.is_zero()).then(|| now + pause)
    }

    fn debt(&self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.at);
        self.debt
            .saturating_sub(passed * u32::from(self.percent) / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the costs and the number of changes that went, where one comes every `every` for a minute and costs `cost`.
    fn minute(percent: u8, every: Duration, cost: Duration) -> (Duration, u32, Duration) {
        let start = Instant::now();
        let mut pacing = Pacing::new(percent, start);
        let (mut spent, mut went, mut longest) = (Duration::ZERO, 0, Duration::ZERO);
        let mut waiting: Option<Instant> = None;
        let mut now = start;
        let mut next = start;
        while now < start + Duration::from_secs(60) {
            while next <= now {
                waiting.get_or_insert(next);
                next += every;
            }
            match (waiting, pacing.due(now)) {
                (Some(since), None) => {
                    longest = longest.max(now - since);
                    now += cost;
                    pacing.note(cost, now);
                    spent += cost;
                    went += 1;
                    waiting = None;
                }
                (Some(_), Some(at)) => now = at,
                (None, _) => now = next,
            }
        }
        (spent, went, longest)
    }

    #[test]
    fn changes_that_come_alone_never_wait() {
        for (every, cost) in [(1000, 108), (3000, 240), (100, 22), (20, 3)] {
            let (_, went, longest) = minute(25, MS * every, MS * cost);
            assert_eq!(went, 60_000_u32.div_ceil(every), "{every} {cost}");
            assert_eq!(longest, Duration::ZERO, "{every} {cost}");
        }
    }

    #[test]
    fn changes_that_keep_coming_take_no_more_than_their_share() {
        for (percent, cost) in [(25, 108), (25, 22), (25, 3), (15, 220), (1, 22), (50, 500)] {
            let (spent, went, longest) = minute(percent, MS * 10, MS * cost);
            let allowed = Duration::from_secs(60) * u32::from(percent) / 100;
            assert!(
                spent <= allowed + BURST + MS * cost * 2,
                "{percent} {cost}: {spent:?}"
            );
            // Nor much less: what waits goes as soon as it may.
            if cost >= 22 {
                assert!(
                    spent + MS * cost * 2 >= allowed,
                    "{percent} {cost}: {spent:?}"
                );
            }
            let batch = MS * cost * 100 / u32::from(percent);
            assert!(longest <= batch + MS * 10, "{percent} {cost}: {longest:?}");
            assert!(went > 1);
        }
    }

    #[test]
    fn everything_goes_at_once_where_all_of_the_time_is_allowed() {
        let (spent, _, longest) = minute(100, MS * 10, MS * 108);
        assert!(spent >= Duration::from_secs(60));
        assert!(longest <= MS * 108);
    }
}
