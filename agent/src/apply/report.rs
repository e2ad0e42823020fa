//! Report of a transaction.

use std::time::{Duration, Instant};

use super::plan::Phase;
use crate::xds::Subscription;

/// Outcome of a transaction. Except after `Applied` and `NotRunning`, the files are as they were
/// before the transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing had to be changed.
    #[default]
    Unchanged,
    /// Envoy accepted every file.
    Applied,
    /// The files were written, but no Envoy is running that could accept or reject them.
    NotRunning,
    /// Envoy rejected at least one file.
    Refused(Refusal),
    /// Envoy did not react to a file, even after the agent renamed it into place a second time.
    Unseen {
        /// Phase of the interrupted step.
        phase: Phase,
        /// Subscriptions of the files to which Envoy did not react.
        subscriptions: Vec<Subscription>,
    },
    /// Envoy died, or its admin interface no longer responds.
    Gone {
        /// Phase of the interrupted step.
        phase: Phase,
        /// Last error of the admin interface.
        reason: String,
    },
}

/// Envoy's rejection of one or more files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Phase of the rejected step.
    pub phase: Phase,
    /// Subscriptions of the files that were not accepted.
    pub subscriptions: Vec<Subscription>,
    /// Messages from Envoy's log about the rejected resources and files, oldest first.
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
    /// Time from the start until the last file was renamed into place. Does not depend on Envoy.
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
    /// Subscriptions that count as accepted without proof: secrets whose serial number `/certs`
    /// does not list, and new files for which Envoy has not reported the new version.
    pub unverified: Vec<Subscription>,
    /// Names of the clusters that were still warming when the time limit for warming was reached.
    pub still_warming: Vec<String>,
    /// Subscriptions of the files that had to be renamed into place a second time, because Envoy
    /// did not react to the first rename.
    pub renamed_again: Vec<Subscription>,
}
