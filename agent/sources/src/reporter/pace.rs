//! Limits how often progress is reported, because each report costs one write per host. Problems
//! are reported immediately.
//!
//! A single change is reported once, when the new revision is being served. While revisions keep
//! changing, reports become less frequent.

use std::time::Duration;

use sesame_kinds::status::AgentState;
use sesame_published::GatewayAgentStatus;
use tokio::time::Instant;

use super::written::ReportChange;

/// Minimum interval between two reports.
pub(super) const SHORTEST: Duration = Duration::from_millis(300);
/// Maximum interval between two progress reports.
const LONGEST: Duration = Duration::from_secs(10);

/// Minimum time that a revision must be in progress before it is reported.
const APPLYING: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(super) struct ReportPace {
    pause: Duration,
    next: Option<Instant>,
    /// Start of the current sequence of `Applying` changes.
    applying: Option<Instant>,
}

impl Default for ReportPace {
    fn default() -> Self {
        Self {
            pause: SHORTEST,
            next: None,
            applying: None,
        }
    }
}

impl ReportPace {
    /// Returns `None` if the change may be reported now.
    pub(super) fn waits_until(&mut self, change: ReportChange, now: Instant) -> Option<Instant> {
        if change != ReportChange::Applying {
            self.applying = None;
        }
        let next = match change {
            ReportChange::None | ReportChange::News => None,
            ReportChange::Applying => {
                let since = *self.applying.get_or_insert(now);
                self.next.max(Some(since + APPLYING))
            }
            ReportChange::Progress => self.next,
        };
        next.filter(|next| *next > now)
    }

    /// Doubles the interval if this report was written soon after the previous interval ended.
    pub(super) fn wrote(&mut self, now: Instant) {
        let busy = self.next.is_some_and(|next| now < next + self.pause);
        self.pause = if busy {
            (self.pause * 2).min(LONGEST)
        } else {
            SHORTEST
        };
        self.next = Some(now + self.pause);
    }
}

pub(super) fn is_progress(before: &GatewayAgentStatus, now: &GatewayAgentStatus) -> bool {
    let well = |status: &GatewayAgentStatus| {
        matches!(status.state, AgentState::Serving | AgentState::Applying)
    };
    let rest = |status: &GatewayAgentStatus| GatewayAgentStatus {
        state: AgentState::Serving,
        message: String::new(),
        wanted_revision: String::new(),
        applied_revision: String::new(),
        applied_at: None,
        ..status.clone()
    };
    // The first served revision is more than progress, because users wait for it.
    let serves = !before.applied_revision.is_empty() && !now.applied_revision.is_empty();
    serves && well(before) && well(now) && rest(before) == rest(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_change_is_immediate_and_repeated_ones_wait() {
        let start = Instant::now();
        let mut pace = ReportPace::default();
        let progress = ReportChange::Progress;
        assert_eq!(pace.waits_until(progress, start), None);
        pace.wrote(start);
        let (mut now, mut writes) = (start, 1);
        while let Some(next) = pace.waits_until(progress, now) {
            if next > start + Duration::from_secs(100) {
                break;
            }
            now = next;
            pace.wrote(now);
            writes += 1;
        }
        assert!((12..=16).contains(&writes), "{writes}");
        let rested = now + Duration::from_secs(30);
        pace.wrote(rested);
        assert_eq!(pace.waits_until(progress, rested), Some(rested + SHORTEST));
        assert_eq!(pace.waits_until(ReportChange::News, rested), None);
    }

    #[test]
    fn applying_is_reported_only_if_it_takes_long() {
        let start = Instant::now();
        let mut pace = ReportPace::default();
        let until = Some(start + APPLYING);
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(pace.waits_until(ReportChange::Applying, start), until);
        assert_eq!(pace.waits_until(ReportChange::Applying, at(1500)), until);
        assert_eq!(pace.waits_until(ReportChange::Applying, at(2000)), None);
        assert_eq!(pace.waits_until(ReportChange::Progress, at(2100)), None);
        let next = Some(at(2200) + APPLYING);
        assert_eq!(pace.waits_until(ReportChange::Applying, at(2200)), next);
    }

    #[test]
    fn progress_is_another_revision_and_never_a_fault() {
        let status = |state, revision: &str| GatewayAgentStatus {
            state,
            wanted_revision: revision.to_owned(),
            applied_revision: revision.to_owned(),
            ..GatewayAgentStatus::default()
        };
        let before = status(AgentState::Serving, "a");
        assert!(is_progress(&before, &status(AgentState::Serving, "b")));
        assert!(is_progress(&before, &status(AgentState::Applying, "a")));
        for state in [AgentState::Degraded, AgentState::Down] {
            assert!(!is_progress(&before, &status(state, "b")));
            assert!(!is_progress(&status(state, "a"), &before));
        }
        assert!(!is_progress(&status(AgentState::Applying, ""), &before));
        let mut drained = status(AgentState::Serving, "b");
        drained.draining = true;
        assert!(!is_progress(&before, &drained));
    }
}
