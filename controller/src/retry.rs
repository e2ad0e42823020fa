//! Pauses between attempts at failed operations.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use tokio::time::Instant;

/// Pauses that double up to a limit.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Pauses {
    /// Returns pauses from `first` to `longest`.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// Returns the pauses between attempts to read or watch: from a tenth of a second to three
    /// seconds. An API server that has just started denies requests until it has loaded the RBAC
    /// rules, so a second attempt is usual.
    pub(crate) const fn of_reads() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(3))
    }

    /// Returns the next pause.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.pause())
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Next attempt at a failed operation.
#[derive(Clone, Debug)]
pub(crate) struct NextAttempt {
    /// Time of the attempt.
    pub(crate) at: Instant,
    pauses: Pauses,
}

impl NextAttempt {
    /// Returns the attempt after a failure at `now`. `before` is the failed attempt, unless it was
    /// the first.
    pub(crate) fn after(before: Option<&Self>, pauses: &Pauses, now: Instant) -> Self {
        let mut pauses = before.map_or(pauses, |before| &before.pauses).clone();
        Self {
            at: now + pauses.pause(),
            pauses,
        }
    }

    /// Returns an attempt this long after `now`, without lengthening any pause.
    pub(crate) fn soon(pause: Duration, pauses: &Pauses, now: Instant) -> Self {
        Self {
            at: now + pause,
            pauses: pauses.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_limit_and_restart_after_reset() {
        let seconds = Duration::from_secs;
        let mut pauses = Pauses::new(seconds(1), seconds(3));
        let taken = [pauses.pause(), pauses.pause(), pauses.pause()];
        assert_eq!(taken, [seconds(1), seconds(2), seconds(3)]);
        pauses.reset();
        assert_eq!(pauses.pause(), seconds(1));
    }
}
