//! What became of a transaction.

use std::time::Duration;

use super::plan::Phase;
use crate::xds::Subscription;

/// How it ended. Except for `Applied` and `NotRunning` the files are as they were before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Disk and Envoy had it already.
    Unchanged,
    /// Envoy reports every file as accepted.
    Applied,
    /// No Envoy to ask: the files are in their final state, and nobody has judged them.
    NotRunning,
    /// Envoy said no.
    Refused(Refusal),
    /// Envoy did not react to a file, not even to a second rename.
    Unseen {
        /// The step that was under way.
        phase: Phase,
        /// The files.
        subscriptions: Vec<Subscription>,
    },
    /// Envoy died or does not answer.
    Gone {
        /// The step that was under way.
        phase: Phase,
        /// What its admin interface said last.
        reason: String,
    },
}

impl Outcome {
    /// Whether disk and Envoy now hold what was wanted.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Unchanged | Self::Applied)
    }
}

/// A file that Envoy refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The step that was under way.
    pub phase: Phase,
    /// The files that were not accepted.
    pub subscriptions: Vec<Subscription>,
    /// What Envoy's log said, oldest first: one entry for each refused resource or file.
    pub envoy_words: Vec<String>,
}

/// One step that Envoy accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Which.
    pub phase: Phase,
    /// Files written.
    pub writes: usize,
    /// Our own time, until the last rename.
    pub until_renamed: Duration,
    /// Until Envoy had accepted everything.
    pub until_accepted: Duration,
}

/// Everything about one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// The accepted steps, in order.
    pub steps: Vec<StepReport>,
    /// Accepted as far as one can tell, but without the usual proof: secrets whose serial number `/certs` does
    /// not list, new files whose version Envoy did not report.
    pub unverified: Vec<Subscription>,
    /// Clusters that were still warming when the transaction went on.
    pub still_warming: Vec<String>,
    /// Files that Envoy only saw at the second rename: its queue of file events overflows.
    pub renamed_again: Vec<Subscription>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self {
            outcome: Outcome::Unchanged,
            steps: Vec::new(),
            unverified: Vec::new(),
            still_warming: Vec::new(),
            renamed_again: Vec::new(),
        }
    }
}
