//! Distributions of times, shared by both benchmarks.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Minimum, median, 99th percentile and maximum, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Times {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Times {
    pub(crate) fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort();
        let at = |hundredths: usize| {
            let index = (samples.len().saturating_sub(1) * hundredths + 50) / 100;
            samples
                .get(index)
                .map_or(0.0, |time| time.as_secs_f64() * 1000.0)
        };
        Self {
            min: at(0),
            median: at(50),
            p99: at(99),
            max: at(100),
        }
    }

    pub(crate) fn cell(&self) -> String {
        let Self {
            min,
            median,
            p99,
            max,
        } = self;
        format!("{min:.1} / {median:.1} / {p99:.1} / {max:.1}")
    }
}

/// Visits all indexes in large steps, in the same order on every run.
pub(crate) fn pick(change: usize, length: usize) -> usize {
    (change * 7919) % length
}

/// Sleeps four times as long as a change took, to isolate it from the next one.
pub(crate) fn pause_after(since: Instant) {
    std::thread::sleep(since.elapsed() * 4);
}
