//! Removes unused clusters while no change is waiting. Must never delay a waiting change.

use std::time::{Duration, Instant};

use super::Serving;
use sesame_apply::Removal;

/// Time without changes before unused clusters are removed. With a shorter period, the next change
/// might find Envoy busy.
const QUIET: Duration = Duration::from_secs(3);
/// Maximum time that unused clusters remain while changes keep arriving.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CleanUp {
    left: Option<LeftOver>,
    /// Until this time, connections to removed listeners may still use these clusters.
    draining: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct LeftOver {
    since: Instant,
    last_change: Instant,
}

impl CleanUp {
    pub(super) fn removal(self, now: Instant) -> Removal {
        if self.draining.is_some_and(|until| now < until) {
            return Removal::Hold;
        }
        match self.left {
            Some(LeftOver { since, .. }) if now.saturating_duration_since(since) >= LONGEST => {
                Removal::AtOnce
            }
            _ => Removal::Later,
        }
    }

    pub(super) fn due(self) -> Option<Instant> {
        let quiet = self.left?.last_change + QUIET;
        Some(self.draining.map_or(quiet, |until| until.max(quiet)))
    }

    /// `tried` is true if removing unused clusters was attempted.
    fn record(&mut self, is_left: bool, tried: bool, now: Instant) {
        let since = self.left.filter(|_| !tried).map_or(now, |left| left.since);
        self.left = is_left.then_some(LeftOver {
            since,
            last_change: now,
        });
    }
}

impl Serving {
    pub(super) fn may_clean_up(&self) -> bool {
        !self.unpublished && self.state.is_live() && !self.selector.has_newer()
    }

    pub(super) fn record_left_over(&mut self) {
        let now = Instant::now();
        let tried = self.clean_up.removal(now) == Removal::AtOnce;
        if self.publisher.take_retired() {
            self.clean_up.draining = Some(now + self.supervisor.drain_time());
        }
        self.clean_up
            .record(self.publisher.has_left_over(), tried, now);
    }

    pub(super) async fn clean_up_if_due(&mut self) {
        if self.clean_up.due().is_some_and(|due| due <= Instant::now()) {
            self.clean_up().await;
        }
    }

    /// Frees inotify instances for Envoy's successor.
    pub(super) async fn prepare_replacement(&mut self) {
        self.clean_up().await;
        if self.state.is_live() {
            self.publisher.make_room_for_successor().await;
        }
    }

    pub(super) async fn clean_up(&mut self) {
        if !self.may_clean_up() {
            return;
        }
        if self.publisher.has_left_over() {
            self.publisher.remove_left_over().await;
        }
        // Repeat a failed removal only after the quiet period.
        self.clean_up
            .record(self.publisher.has_left_over(), true, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_resources_go_despite_continuous_changes() {
        let start = Instant::now();
        let mut clean_up = CleanUp::default();
        assert_eq!(clean_up.due(), None);
        clean_up.record(true, false, start);
        assert_eq!(clean_up.due(), Some(start + QUIET));
        clean_up.record(true, false, start + QUIET / 2);
        assert_eq!(clean_up.due(), Some(start + QUIET / 2 + QUIET));
        assert_eq!(clean_up.removal(start + QUIET), Removal::Later);
        assert_eq!(clean_up.removal(start + LONGEST), Removal::AtOnce);
        // After a failed removal, the full wait starts again.
        clean_up.record(true, true, start + LONGEST);
        assert_eq!(clean_up.due(), Some(start + LONGEST + QUIET));
        assert_eq!(clean_up.removal(start + LONGEST + QUIET), Removal::Later);
        clean_up.record(false, false, start + LONGEST);
        assert_eq!(clean_up.due(), None);
    }

    #[test]
    fn unused_resources_stay_while_connections_drain() {
        let start = Instant::now();
        let drained = start + LONGEST * 3;
        let mut clean_up = CleanUp {
            draining: Some(drained),
            ..CleanUp::default()
        };
        clean_up.record(true, false, start);
        assert_eq!(clean_up.due(), Some(drained));
        assert_eq!(clean_up.removal(start + LONGEST), Removal::Hold);
        assert_eq!(clean_up.removal(drained), Removal::AtOnce);
    }
}
