//! Report of a transaction.

use std::time::{Duration, Instant};

use super::plan::Phase;
use crate::xds::Subscription;

/// Outcome of a transaction. Except for `Applied` and `NotRunning` the files are as they were
/// before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Disk and Envoy already had the desired state.
    #[default]
    Unchanged,
    /// Envoy reports every file as accepted.
    Applied,
    /// No Envoy runs: the files are final, but unverified.
    NotRunning,
    /// Envoy refused a file.
    Refused(Refusal),
    /// Envoy did not react to a file, not even to a second rename.
    Unseen {
        /// Phase of the interrupted step.
        phase: Phase,
        /// Subscriptions of the files.
        subscriptions: Vec<Subscription>,
    },
    /// Envoy died or does not answer.
    Gone {
        /// Phase of the interrupted step.
        phase: Phase,
        /// Last error of its admin interface.
        reason: String,
    },
}

/// Refusal of a file by Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Phase of the refused step.
    pub phase: Phase,
    /// Subscriptions of the files that were not accepted.
    pub subscriptions: Vec<Subscription>,
    /// Messages of Envoy's log, oldest first: one entry for each refused resource or file.
    pub envoy_words: Vec<String>,
}

/// Step that Envoy accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Phase of the step.
    pub phase: Phase,
    /// Number of files written.
    pub writes: usize,
    /// When it began.
    pub began: Instant,
    /// Time until the last rename, which only depends on the agent.
    pub until_renamed: Duration,
    /// Time until Envoy had accepted everything.
    pub until_accepted: Duration,
}

/// Record of one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// Outcome of the transaction.
    pub outcome: Outcome,
    /// Accepted steps, in order.
    pub steps: Vec<StepReport>,
    /// Subscriptions that were accepted without the usual proof: secrets whose serial number
    /// `/certs` does not list, and new files whose version Envoy did not report.
    pub unverified: Vec<Subscription>,
    /// Clusters that were still warming when the transaction continued.
    pub still_warming: Vec<String>,
    /// Files that Envoy only saw after a second rename, because its queue of file events overflows.
    pub renamed_again: Vec<Subscription>,
}
