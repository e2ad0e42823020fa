//! The pauses of a watch: how long changes are gathered, and how often everything is looked at. Values only.

use std::time::Duration;

/// The timing of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time of quiet after which the change of one whole file is sent.
    pub one: Duration,
    /// Time of quiet after which any other change is sent.
    pub quiet: Duration,
    /// Time after its beginning at which a change is sent in any case.
    pub longest: Duration,
    /// Time between two checks for a missing directory, or between two full scans without inotify.
    pub poll: Duration,
    /// Maximum time between two full scans.
    pub rescan: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            one: Duration::from_micros(200),
            quiet: Duration::from_millis(2),
            longest: Duration::from_millis(20),
            poll: Duration::from_secs(1),
            rescan: Duration::from_secs(30),
        }
    }
}
