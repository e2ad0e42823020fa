//! How long events are collected, and how often everything is scanned.

use std::time::Duration;

/// Timing of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Quiet period before a change to one complete file is sent.
    pub one: Duration,
    /// Quiet period before any other change is sent.
    pub quiet: Duration,
    /// Maximum delay after the first event.
    pub longest: Duration,
    /// Interval between checks for a missing directory, and between full scans without inotify.
    pub poll: Duration,
    /// Maximum interval between full scans.
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
