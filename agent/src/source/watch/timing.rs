//! The timing of a watch: how long changes are collected, and how often everything is scanned.
//! Values only.

use std::time::Duration;

/// The timing of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Quiet time before a change to one complete file is sent.
    pub one: Duration,
    /// Quiet time before any other change is sent.
    pub quiet: Duration,
    /// Maximum time before a change is sent.
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
