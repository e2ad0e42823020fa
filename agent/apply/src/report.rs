//! Report on a transaction.

use std::time::{Duration, Instant};

use super::plan::Phase;
use sesame_render::xds::Subscription;

/// Outcome of a transaction. Except after `Applied` and `NotRunning`, the files are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing had to be changed.
    #[default]
    Unchanged,
    /// Envoy accepted every file.
    Applied,
    /// The files were written, but no Envoy is running.
    NotRunning,
    /// Envoy rejected at least one file.
    Refused(Refusal),
    /// Envoy did not react to a file, even after a second rename.
    Unseen {
        /// Phase of the interrupted step.
        phase: Phase,
        /// Files to which Envoy did not react.
        subscriptions: Vec<Subscription>,
    },
    /// Envoy died, or its admin interface no longer responds.
    Gone {
        /// Phase of the interrupted step.
        phase: Phase,
        /// Last error from the admin interface.
        reason: String,
    },
}

/// Envoy's rejection of one or more files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Phase of the rejected step.
    pub phase: Phase,
    /// Files that were not accepted.
    pub subscriptions: Vec<Subscription>,
    /// Messages from Envoy's log about the rejection, oldest first.
    pub envoy_words: Vec<String>,
}

/// A step in which Envoy accepted every file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Phase of the step.
    pub phase: Phase,
    /// Number of files written.
    pub writes: usize,
    /// Start time of the step.
    pub began: Instant,
    /// Time from the start until the last rename.
    pub until_renamed: Duration,
    /// Time from the start until Envoy had accepted every file.
    pub until_accepted: Duration,
}

/// Record of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// Outcome of the transaction.
    pub outcome: Outcome,
    /// Accepted steps, in order.
    pub steps: Vec<StepReport>,
    /// Accepted without proof: secrets whose serial number `/certs` does not list, and new files
    /// for which Envoy has not reported the new version.
    pub unverified: Vec<Subscription>,
    /// Clusters that were still warming at the time limit.
    pub still_warming: Vec<String>,
    /// Files that were renamed a second time, because Envoy did not react to the first rename.
    pub renamed_again: Vec<Subscription>,
}
