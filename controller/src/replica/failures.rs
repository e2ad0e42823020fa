//! Logs failed requests to the API server: warnings during an outage, and a message when it is
//! over.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time without failures after which an outage ends.
const QUIET_PERIOD: Duration = Duration::from_secs(10);
/// Time between the first two warnings; later intervals double.
const WARNING_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct ApiFailures(Mutex<Option<Outage>>);

#[derive(Debug)]
struct Outage {
    since: Instant,
    last: Instant,
    warned: Instant,
    count: u64,
    subjects: BTreeSet<String>,
}

impl ApiFailures {
    /// Logs a warning if one is due.
    pub(crate) fn record(&self, subject: &str, error: &dyn Display) {
        let mut outage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let Some(outage) = &mut *outage else {
            *outage = Some(Outage::new(subject, now));
            tracing::warn!(subject, %error, "a request to the API server failed; retrying, and using the last known objects");
            return;
        };
        if outage.record(subject, now) {
            let subjects: Vec<&str> = outage.subjects.iter().map(String::as_str).collect();
            tracing::warn!(
                failures = outage.count,
                seconds = (now - outage.since).as_secs(),
                subjects = subjects.join(", "),
                %error,
                "requests to the API server still fail; retrying"
            );
        }
    }

    pub(crate) fn answered(&self) {
        let mut outage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(over) = outage.take_if(|outage| now - outage.last >= QUIET_PERIOD) {
            tracing::info!(
                failures = over.count,
                seconds = (over.last - over.since).as_secs(),
                "requests to the API server succeed again"
            );
        }
    }
}

impl Outage {
    fn new(subject: &str, now: Instant) -> Self {
        Self {
            since: now,
            last: now,
            warned: now,
            count: 1,
            subjects: BTreeSet::from([subject.to_owned()]),
        }
    }

    /// Returns true if a warning is due.
    fn record(&mut self, subject: &str, now: Instant) -> bool {
        self.last = now;
        self.count += 1;
        self.subjects.insert(subject.to_owned());
        let due = now - self.warned >= WARNING_INTERVAL.max(self.warned - self.since);
        if due {
            self.warned = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_grow_rare_while_failures_last() {
        let start = Instant::now();
        let mut outage = Outage::new("Gateway", start);
        let due: Vec<u64> = (1..=600)
            .filter(|second| outage.record("Secret", start + Duration::from_secs(*second)))
            .collect();
        assert_eq!(due, [30, 60, 120, 240, 480]);
        assert_eq!(outage.count, 601);
        assert_eq!(outage.subjects.len(), 2);
    }
}
