//! The timing of a watch: how long events are collected, and how often everything is scanned.
//! Contains only values.

use std::time::Duration;

/// The timing of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time without further events after which a change to one complete file is sent.
    pub one: Duration,
    /// Time without further events after which any other change is sent.
    pub quiet: Duration,
    /// Maximum time between the first event and sending the change.
    pub longest: Duration,
    /// Interval between checks for a missing directory, and between full scans if inotify is not
    /// available.
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
