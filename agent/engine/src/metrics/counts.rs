//! Counts an instance's work since the agent started.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

use sesame_apply::StepReport;
use sesame_apply::plan::Phase;
use sesame_envoy::restart::RestartMethod;

/// Upper bounds in seconds.
const APPLY_BOUNDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ApplyOutcome {
    /// Envoy serves the whole target.
    Accepted,
    /// Envoy serves the target without the rejected parts.
    Reduced,
    /// Envoy rejects the target as a whole.
    Refused,
    /// The target could not be applied for another reason, and will be tried again.
    Postponed,
}

impl ApplyOutcome {
    pub(super) const ALL: [Self; 4] = [
        Self::Accepted,
        Self::Reduced,
        Self::Refused,
        Self::Postponed,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Reduced => "reduced",
            Self::Refused => "refused",
            Self::Postponed => "postponed",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessReason {
    Start,
    HotRestart,
    /// The process took over without a hot restart.
    Handover,
    Death,
}

impl ProcessReason {
    pub(super) const ALL: [Self; 4] = [Self::Start, Self::HotRestart, Self::Handover, Self::Death];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::HotRestart => "hot_restart",
            Self::Handover => "handover",
            Self::Death => "death",
        }
    }
}

impl From<RestartMethod> for ProcessReason {
    fn from(way: RestartMethod) -> Self {
        match way {
            RestartMethod::Hot => Self::HotRestart,
            RestartMethod::Handover => Self::Handover,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PhaseTime {
    /// Time until the last rename.
    pub(super) renaming: Duration,
    /// Time from the last rename until Envoy had accepted the whole step.
    pub(super) accepting: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct ApplyCounts {
    outcomes: [u64; ApplyOutcome::ALL.len()],
    /// Time from each change until Envoy was verified to serve it.
    pub(super) durations: Durations,
    /// In the order of [`Phase`].
    phases: [PhaseTime; Phase::ALL.len()],
    /// In the order of [`ProcessReason`].
    processes: [u64; ProcessReason::ALL.len()],
}

impl Default for ApplyCounts {
    fn default() -> Self {
        Self {
            outcomes: [0; ApplyOutcome::ALL.len()],
            durations: Durations::with_bounds(APPLY_BOUNDS.iter().copied()),
            phases: [PhaseTime::default(); Phase::ALL.len()],
            processes: [0; ProcessReason::ALL.len()],
        }
    }
}

impl ApplyCounts {
    /// Only accepted or reduced targets have a duration.
    pub(crate) fn record_apply(&mut self, outcome: ApplyOutcome, took: Duration) {
        self.outcomes[outcome as usize] += 1;
        if matches!(outcome, ApplyOutcome::Accepted | ApplyOutcome::Reduced) {
            self.durations.observe(took.as_secs_f64());
        }
    }

    pub(crate) fn record_steps(&mut self, steps: &[StepReport]) {
        for step in steps {
            let StepReport {
                phase,
                writes: _,
                began: _,
                until_renamed,
                until_accepted,
            } = step;
            let time = &mut self.phases[*phase as usize];
            time.renaming += *until_renamed;
            time.accepting += until_accepted.saturating_sub(*until_renamed);
        }
    }

    pub(crate) fn record_process(&mut self, reason: ProcessReason) {
        self.processes[reason as usize] += 1;
    }

    /// Returns how often Envoy ended without an order and was started again.
    pub(crate) fn deaths(&self) -> u64 {
        self.processes_for(ProcessReason::Death)
    }

    pub(super) fn time_of(&self, phase: Phase) -> PhaseTime {
        self.phases[phase as usize]
    }

    pub(super) fn processes_for(&self, reason: ProcessReason) -> u64 {
        self.processes[reason as usize]
    }

    pub(super) fn outcome_count(&self, outcome: ApplyOutcome) -> u64 {
        self.outcomes[outcome as usize]
    }
}

/// A histogram of durations in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Durations {
    /// Upper bounds in ascending order, each with the number of durations above the previous bound.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) sum: f64,
}

impl Durations {
    fn with_bounds(bounds: impl Iterator<Item = f64>) -> Self {
        let buckets = bounds.chain([f64::INFINITY]).map(|bound| (bound, 0));
        Self {
            buckets: buckets.collect(),
            sum: 0.0,
        }
    }

    fn observe(&mut self, seconds: f64) {
        self.sum += seconds;
        let bucket = self.buckets.iter_mut().find(|(bound, _)| seconds <= *bound);
        if let Some((_, count)) = bucket {
            *count += 1;
        }
    }

    pub(super) fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let count = self.buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum, count, &self.buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn steps_are_added_up_by_phase_and_part() {
        let step = |phase, renamed, accepted| StepReport {
            phase,
            writes: 1,
            began: Instant::now(),
            until_renamed: Duration::from_millis(renamed),
            until_accepted: Duration::from_millis(accepted),
        };
        let mut counts = ApplyCounts::default();
        counts.record_steps(&[step(Phase::Leaves, 2, 2), step(Phase::Clusters, 1, 5)]);
        counts.record_steps(&[step(Phase::Clusters, 1, 11)]);
        let totals = Phase::ALL.map(|phase| {
            let PhaseTime {
                renaming,
                accepting,
            } = counts.time_of(phase);
            (renaming.as_millis(), accepting.as_millis())
        });
        let mut wanted = [(0, 0); Phase::ALL.len()];
        wanted[Phase::Leaves as usize] = (2, 0);
        wanted[Phase::Clusters as usize] = (2, 14);
        assert_eq!(totals, wanted);
    }

    #[test]
    fn every_reason_and_phase_has_its_own_place() {
        let mut counts = ApplyCounts::default();
        for (most, reason) in (1..).zip(ProcessReason::ALL) {
            (0..most).for_each(|_| counts.record_process(reason));
        }
        let totals = ProcessReason::ALL.map(|reason| counts.processes_for(reason));
        assert_eq!(totals, [1, 2, 3, 4]);
        let places = Phase::ALL.map(|phase| phase as usize);
        assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
