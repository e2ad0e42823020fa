//! The faults as they happened, and whether they explain a failed request. Pure: times are given
//! as durations since the start of the run.

use std::time::Duration;

use super::probe::Loss;
use super::schedule::{Disk, Fault};

/// Faults that ended this long before a violation are printed with it.
const LOOK_BACK: Duration = Duration::from_secs(10);

/// Minimum time between automatic replacements of an Envoy.
pub(crate) const REPLACEMENT_PAUSE: Duration = Duration::from_secs(60);

/// A fault that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) fault: Fault,
    pub(crate) began: Duration,
    /// `None` until the fault has ended.
    pub(crate) ended: Option<Duration>,
}

/// All faults of a run, ordered by their start.
pub(crate) struct History {
    entries: Vec<Entry>,
    grace: Duration,
}

impl History {
    /// Creates an empty history. Within `grace` after a fault, an Envoy must serve again.
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            entries: Vec::new(),
            grace,
        }
    }

    /// Records that a fault begins, and returns its number.
    pub(crate) fn begin(&mut self, fault: Fault, now: Duration) -> usize {
        self.entries.push(Entry {
            fault,
            began: now,
            ended: None,
        });
        self.entries.len() - 1
    }

    /// Records that a fault has ended.
    pub(crate) fn end(&mut self, number: usize, now: Duration) {
        self.entries[number].ended = Some(now);
    }

    /// Returns the number of faults that have begun.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if a fault explains a loss on this host between `from` and `until`.
    pub(crate) fn explains(
        &self,
        loss: Loss,
        host: usize,
        from: Duration,
        until: Duration,
    ) -> bool {
        let mut entries = self.entries.iter().filter(|entry| {
            // An agent waits a minute after an automatic replacement before it begins the next one.
            let late = match entry.fault {
                Fault::UpgradeEnvoy(_) => REPLACEMENT_PAUSE,
                _ => Duration::ZERO,
            };
            let is_past = self.recovered_by(host, entry).saturating_add(late) < from;
            entry.began <= until && !is_past
        });
        entries.any(|entry| match loss {
            Loss::Leak => false,
            Loss::Request => entry.fault.envoy() == Some(host),
            Loss::TcpConnection => {
                entry.fault.envoy() == Some(host) || entry.fault.replaces() == Some(host)
            }
            Loss::Http3Connection => {
                let is_lossy =
                    || self.is_interrupted(host, entry) || self.follows_full_disk(host, entry);
                entry.fault.envoy() == Some(host)
                    || entry.fault.replaces() == Some(host) && is_lossy()
            }
        })
    }

    /// Returns true if the agent may have stopped while it replaced an Envoy.
    fn is_interrupted(&self, host: usize, replacement: &Entry) -> bool {
        self.entries.iter().any(|entry| {
            entry.fault.agent() == Some(host)
                && entry.began <= self.with_grace(replacement)
                && self.with_grace(entry) >= replacement.began
        })
    }

    /// Returns true if the runtime directory may have been full when the replaced Envoy started. The
    /// agent then cannot record the order of its sockets.
    fn follows_full_disk(&self, host: usize, replacement: &Entry) -> bool {
        let mut entries = self.entries.iter();
        let started = entries.rfind(|entry| {
            let is_start = match entry.fault {
                Fault::UpgradeAgent(_) => false,
                fault => fault.envoy() == Some(host) || fault.replaces() == Some(host),
            };
            is_start && entry.began < replacement.began
        });
        started.is_some_and(|started| {
            self.entries.iter().any(|entry| {
                entry.fault == Fault::Fill(host, Disk::Runtime)
                    && entry.began <= self.recovered_by(host, started)
                    && self.with_grace(entry) >= started.began
            })
        })
    }

    /// Returns when the host must serve again. Faults of its agent or disks in the meantime extend
    /// the time, because only an agent starts an Envoy.
    fn recovered_by(&self, host: usize, entry: &Entry) -> Duration {
        let mut by = self.with_grace(entry);
        let delaying = |other: &&Entry| other.fault.delays() == Some(host);
        loop {
            let others = self.entries.iter().filter(delaying);
            let overlapping =
                others.filter(|other| other.began <= by && self.with_grace(other) > entry.began);
            let latest = overlapping.map(|other| self.with_grace(other)).max();
            match latest.filter(|latest| *latest > by) {
                Some(latest) => by = latest,
                None => return by,
            }
        }
    }

    fn with_grace(&self, entry: &Entry) -> Duration {
        entry
            .ended
            .map_or(Duration::MAX, |ended| ended + self.grace)
    }

    /// Describes the faults that were active between `from` and `until`, or ended shortly before.
    pub(crate) fn active(&self, from: Duration, until: Duration) -> String {
        let active = self.entries.iter().filter(|entry| {
            let ended = entry.ended.map_or(Duration::MAX, |ended| ended + LOOK_BACK);
            entry.began <= until && ended >= from
        });
        let texts: Vec<String> = active
            .map(|entry| {
                let began = entry.began.as_secs_f64();
                match entry.ended {
                    Some(ended) => {
                        format!("{} {began:.1}-{:.1} s", entry.fault, ended.as_secs_f64())
                    }
                    None => format!("{} since {began:.1} s", entry.fault),
                }
            })
            .collect();
        if texts.is_empty() {
            return "none".to_owned();
        }
        texts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Slowness, Strategy};

    fn history(faults: &[(Fault, u64, Option<u64>)]) -> History {
        let mut history = History::new(Duration::from_secs(5));
        for (fault, began, ended) in faults {
            let number = history.begin(*fault, Duration::from_secs(*began));
            if let Some(ended) = ended {
                history.end(number, Duration::from_secs(*ended));
            }
        }
        history
    }

    fn explains(history: &History, loss: Loss, host: usize, from: u64, until: u64) -> bool {
        let [from, until] = [from, until].map(Duration::from_secs);
        history.explains(loss, host, from, until)
    }

    fn explained(history: &History, host: usize, from: u64, until: u64) -> bool {
        explains(history, Loss::Request, host, from, until)
    }

    #[test]
    fn killed_envoy_explains_failures_within_grace() {
        let history = history(&[(Fault::KillEnvoy(1), 10, Some(10))]);
        assert!(!explained(&history, 1, 8, 9));
        assert!(explained(&history, 1, 8, 11));
        assert!(explained(&history, 1, 15, 16));
        assert!(!explained(&history, 1, 16, 17));
        assert!(!explained(&history, 2, 10, 11), "another host");
    }

    #[test]
    fn agent_or_disk_fault_explains_no_failure() {
        let history = history(&[
            (Fault::KillAgent(1), 10, Some(20)),
            (Fault::FreezeAgent(1), 30, None),
            (
                Fault::SlowDisk(1, Disk::Runtime, Slowness::Hanging),
                30,
                None,
            ),
        ]);
        assert!(!explained(&history, 1, 12, 13));
        assert!(!explained(&history, 1, 40, 41));
    }

    #[test]
    fn dead_agent_delays_return_of_envoy() {
        let history = history(&[
            (Fault::KillAgent(1), 8, Some(20)),
            (Fault::KillEnvoy(1), 10, Some(10)),
            (Fault::UpgradeAgent(1), 24, Some(26)),
            (Fault::KillAgent(1), 40, Some(41)),
        ]);
        assert!(explained(&history, 1, 24, 25), "first agent fault");
        assert!(explained(&history, 1, 30, 31), "second one in its grace");
        assert!(!explained(&history, 1, 32, 33));
        assert!(!explained(&history, 1, 41, 42));
    }

    #[test]
    fn replaced_envoy_explains_lost_tcp_connection() {
        let replaced = (Fault::ReplaceEnvoy(1, Strategy::Hot), 10, Some(12));
        let history = history(&[replaced]);
        assert!(explains(&history, Loss::TcpConnection, 1, 15, 16));
        assert!(!explains(&history, Loss::TcpConnection, 1, 20, 21));
        for loss in [Loss::Request, Loss::Http3Connection, Loss::Leak] {
            assert!(!explains(&history, loss, 1, 15, 16), "{loss:?}");
        }
    }

    #[test]
    fn interrupted_handover_explains_lost_http3_connection() {
        let history = history(&[
            (Fault::ReplaceEnvoy(1, Strategy::Handover), 10, Some(12)),
            (Fault::KillAgent(1), 11, Some(13)),
            (Fault::KillAgent(1), 40, Some(41)),
        ]);
        assert!(explains(&history, Loss::Http3Connection, 1, 12, 13));
        assert!(!explains(&history, Loss::Request, 1, 12, 13));
        assert!(!explains(&history, Loss::Http3Connection, 1, 41, 42));
    }

    #[test]
    fn full_disk_explains_connection_lost_at_next_handover() {
        let handover = |host| Fault::ReplaceEnvoy(host, Strategy::Handover);
        let history = history(&[
            (Fault::Fill(1, Disk::Runtime), 5, Some(15)),
            (handover(1), 10, Some(12)),
            (handover(1), 40, Some(42)),
            (handover(1), 70, Some(72)),
        ]);
        assert!(explains(&history, Loss::Http3Connection, 1, 41, 42));
        assert!(!explains(&history, Loss::Http3Connection, 1, 71, 72));
    }

    #[test]
    fn active_faults_are_named_with_their_times() {
        let history = history(&[
            (Fault::KillEnvoy(1), 10, Some(10)),
            (Fault::FreezeAgent(2), 30, None),
        ]);
        let active =
            |from, until| history.active(Duration::from_secs(from), Duration::from_secs(until));
        assert_eq!(active(1, 2), "none");
        assert_eq!(active(9, 11), "KillEnvoy(1) 10.0-10.0 s");
        assert_eq!(active(40, 41), "FreezeAgent(2) since 30.0 s");
    }
}
