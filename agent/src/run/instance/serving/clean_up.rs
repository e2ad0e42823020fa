//! Removal of clusters that changes have left unused, when nothing waits: so the next change does not wait for the end of the last.
//!
//! It must never be in the way of a change that is there.

use std::time::{Duration, Instant};

use super::Serving;
use crate::apply::Removal;

/// Time without a change after which what is unused is removed: the next change does not find Envoy busy with that, and one that
/// writes the list of clusters removes it with its own.
const QUIET: Duration = Duration::from_secs(3);
/// Time after which a change removes it itself, if no moment has come at which nothing waited.
const LONGEST: Duration = Duration::from_secs(10);

/// Clusters of Envoy that nothing uses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CleanUp(Option<LeftOver>);

#[derive(Clone, Copy, Debug)]
struct LeftOver {
    /// Time since when there are some.
    since: Instant,
    last_change: Instant,
}

impl CleanUp {
    /// Returns when the change that is made now is to remove what nothing uses.
    pub(super) fn removal(self, now: Instant) -> Removal {
        match self.0 {
            Some(LeftOver { since, .. }) if now.saturating_duration_since(since) >= LONGEST => {
                Removal::AtOnce
            }
            _ => Removal::Later,
        }
    }

    /// Returns the moment at which it is removed, if nothing waits then.
    pub(super) fn due(self) -> Option<Instant> {
        Some(self.0?.last_change + QUIET)
    }

    /// Takes note of whether anything is unused after a change. `tried` says that it was to be removed.
    fn note(&mut self, is_left: bool, tried: bool, now: Instant) {
        let since = self.0.filter(|_| !tried).map_or(now, |left| left.since);
        self.0 = is_left.then_some(LeftOver {
            since,
            last_change: now,
        });
    }
}

impl Serving {
    /// Returns true while no change waits and Envoy could be told.
    pub(super) fn may_clean_up(&self) -> bool {
        !self.unpublished && self.state.is_live() && !self.selector.has_newer()
    }

    /// Takes note of what the last change has left unused.
    pub(super) fn note_left_over(&mut self) {
        let now = Instant::now();
        let tried = self.clean_up.removal(now) == Removal::AtOnce;
        self.clean_up
            .note(self.publisher.has_left_over(), tried, now);
    }

    /// Removes what is unused, if it is time for it.
    pub(super) async fn clean_up_if_due(&mut self) {
        if self.clean_up.due().is_some_and(|due| due <= Instant::now()) {
            self.clean_up().await;
        }
    }

    /// Removes what is unused, unless a change waits.
    pub(super) async fn clean_up(&mut self) {
        if !self.may_clean_up() {
            return;
        }
        if self.publisher.has_left_over() {
            self.publisher.remove_left_over().await;
        }
        // What could not be removed is tried again, after a while.
        self.clean_up
            .note(self.publisher.has_left_over(), true, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unused_goes_after_a_while_whether_or_not_changes_keep_coming() {
        let start = Instant::now();
        let mut clean_up = CleanUp::default();
        assert_eq!(clean_up.due(), None);
        clean_up.note(true, false, start);
        assert_eq!(clean_up.due(), Some(start + QUIET));
        // Changes put it off, but not for ever.
        clean_up.note(true, false, start + QUIET / 2);
        assert_eq!(clean_up.due(), Some(start + QUIET / 2 + QUIET));
        assert_eq!(clean_up.removal(start + QUIET), Removal::Later);
        assert_eq!(clean_up.removal(start + LONGEST), Removal::AtOnce);
        // What stays in spite of it waits again.
        clean_up.note(true, true, start + LONGEST);
        assert_eq!(clean_up.due(), Some(start + LONGEST + QUIET));
        assert_eq!(clean_up.removal(start + LONGEST + QUIET), Removal::Later);
        clean_up.note(false, false, start + LONGEST);
        assert_eq!(clean_up.due(), None);
    }
}
