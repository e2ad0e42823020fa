//! Report of a transaction.

use std::time::{Duration, Instant};

use super::plan::Phase;
use crate::xds::Subscription;

/// Outcome of a transaction. After any outcome except `Applied` and `NotRunning`, the files are
/// unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The files and Envoy were already in the desired state.
    #[default]
    Unchanged,
    /// Envoy accepted every file.
    Applied,
    /// No Envoy is running. The files are in place, but no Envoy has verified them.
    NotRunning,
    /// Envoy rejected a file.
    Refused(Refusal),
    /// Envoy did not react to a file, even after a second rename.
    Unseen {
        /// Phase of the interrupted step.
        phase: Phase,
        /// Subscriptions of the files.
        subscriptions: Vec<Subscription>,
    },
    /// Envoy died or does not respond.
    Gone {
        /// Phase of the interrupted step.
        phase: Phase,
        /// Last error from its admin interface.
        reason: String,
    },
}

/// Rejection of a file by Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Phase of the rejected step.
    pub phase: Phase,
    /// Subscriptions of the files that were not accepted.
    pub subscriptions: Vec<Subscription>,
    /// Messages from Envoy's log, oldest first: one for each rejected resource or file.
    pub envoy_words: Vec<String>,
}

/// A step that Envoy accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Phase of the step.
    pub phase: Phase,
    /// Number of files written.
    pub writes: usize,
    /// Start time of the step.
    pub began: Instant,
    /// Time until the last rename. Depends only on the agent, not on Envoy.
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
    /// Subscriptions accepted without the usual proof. These are secrets whose serial number
    /// `/certs` does not list, and new files whose version Envoy did not report.
    pub unverified: Vec<Subscription>,
    /// Clusters that were still warming when the transaction continued.
    pub still_warming: Vec<String>,
    /// Files that Envoy saw only after a second rename, because its queue of file events
    /// overflowed.
    pub renamed_again: Vec<Subscription>,
}
