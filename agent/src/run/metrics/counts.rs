//! ApplyCounts of what an instance has done since the agent started. Values: who wants to know them reads the newest.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

/// Upper bounds of the durations of changes, in seconds.
const APPLY_BOUNDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Outcome of bringing Envoy to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::run) enum ApplyOutcome {
    /// Envoy serves all of it.
    Accepted,
    /// Envoy serves it without what it refuses.
    Reduced,
    /// Envoy refuses it as a whole.
    Refused,
    /// Something other than a refusal was in the way; it is tried again.
    Postponed,
}

impl ApplyOutcome {
    /// All outcomes, in the order of the enum.
    pub(super) const ALL: [Self; 4] = [
        Self::Accepted,
        Self::Reduced,
        Self::Refused,
        Self::Postponed,
    ];

    /// Returns the outcome as a label has it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Reduced => "reduced",
            Self::Refused => "refused",
            Self::Postponed => "postponed",
        }
    }
}

/// ApplyCounts of one instance.
#[derive(Clone, Debug)]
pub(in crate::run) struct ApplyCounts {
    outcomes: [u64; ApplyOutcome::ALL.len()],
    /// Time that it took until Envoy was seen to serve a change.
    pub(super) durations: Durations,
    /// Envoy processes that came into service.
    pub(in crate::run) processes: u64,
}

impl Default for ApplyCounts {
    fn default() -> Self {
        Self {
            outcomes: [0; ApplyOutcome::ALL.len()],
            durations: Durations::with_bounds(APPLY_BOUNDS.iter().copied()),
            processes: 0,
        }
    }
}

impl ApplyCounts {
    /// ApplyCounts a try. Only what Envoy serves in the end has a duration.
    pub(in crate::run) fn note(&mut self, outcome: ApplyOutcome, took: Duration) {
        self.outcomes[outcome as usize] += 1;
        if matches!(outcome, ApplyOutcome::Accepted | ApplyOutcome::Reduced) {
            self.durations.observe(took.as_secs_f64());
        }
    }

    /// Returns how many tries ended so.
    pub(super) fn of(&self, outcome: ApplyOutcome) -> u64 {
        self.outcomes[outcome as usize]
    }
}

/// Durations in seconds, by upper bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Durations {
    /// Upper bounds, ascending, each with the number of durations up to it and above the bound before.
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

    /// Writes them as a histogram.
    pub(super) fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let count = self.buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum, count, &self.buckets, None)
    }
}
