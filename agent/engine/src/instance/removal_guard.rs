//! Holds revisions that remove a large part of the configuration, probably by mistake. A held
//! revision waits until an operator accepts it, or until the source has kept it for a while.

use std::time::{Duration, Instant};

use sesame_proto::encoded::Counts;

/// Minimum number of items to guard. A smaller set may shrink freely.
const FEW: usize = 10;

/// Losing all listeners always counts, because nothing is served without them.
fn shrinks(old: Counts, new: Counts, percent: u8) -> Option<String> {
    if percent < 100 && old.listeners > 0 && new.listeners == 0 {
        return Some(match old.listeners {
            1 => "the only listener".to_owned(),
            all => format!("all {all} listeners"),
        });
    }
    let losses: Vec<String> = [
        ("listeners", old.listeners, new.listeners),
        ("hostnames", old.hostnames, new.hostnames),
        ("backends", old.backends, new.backends),
    ]
    .into_iter()
    .filter(|(_, before, after)| {
        *before >= FEW && before.saturating_sub(*after) * 100 > before * usize::from(percent)
    })
    .map(|(what, before, after)| format!("{} of {before} {what}", before - after))
    .collect();
    (!losses.is_empty()).then(|| losses.join(", "))
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldRevision {
    revision: String,
    until: Instant,
}

#[derive(Clone, Debug)]
pub(super) struct RemovalGuard {
    percent: u8,
    pause: Duration,
    held: Option<HeldRevision>,
}

impl RemovalGuard {
    /// At 100 percent, nothing is held.
    pub(super) fn new(percent: u8, pause: Duration) -> Self {
        Self {
            percent,
            pause,
            held: None,
        }
    }

    /// Fails if `new` must not replace `served` yet.
    pub(super) fn check(
        &mut self,
        served: Option<Counts>,
        new: Counts,
        revision: impl FnOnce() -> String,
        now: Instant,
    ) -> Result<(), String> {
        let Some(loss) = served.and_then(|served| shrinks(served, new, self.percent)) else {
            self.held = None;
            return Ok(());
        };
        let revision = revision();
        let same = self.held.take().filter(|held| held.revision == revision);
        let held = same.unwrap_or(HeldRevision {
            revision,
            until: now + self.pause,
        });
        if held.until <= now {
            return Ok(());
        }
        self.held = Some(held);
        Err(format!(
            "the newest revision would remove {loss} and is held; run `sesame-agent accept` to apply it now; otherwise it is applied after {} s if the source still contains it",
            self.pause.as_secs()
        ))
    }

    /// If the limits changed, restarts the waiting period and returns true.
    pub(super) fn set(&mut self, percent: u8, pause: Duration) -> bool {
        if (self.percent, self.pause) == (percent, pause) {
            return false;
        }
        *self = Self::new(percent, pause);
        true
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    /// Returns false if no revision is held.
    pub(super) fn open(&mut self) -> bool {
        self.held.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(backends: usize) -> Counts {
        Counts {
            listeners: 2,
            hostnames: 30,
            backends,
        }
    }

    fn check(gate: &mut RemovalGuard, backends: usize, revision: &str, now: Instant) -> bool {
        let served = Some(size(20));
        gate.check(served, size(backends), || revision.to_owned(), now)
            .is_ok()
    }

    #[test]
    fn removal_beyond_half_waits_until_source_persists() {
        let (start, pause) = (Instant::now(), Duration::from_secs(60));
        let mut gate = RemovalGuard::new(50, pause);
        assert!(check(&mut gate, 10, "half", start));
        assert!(!check(&mut gate, 9, "a", start));
        assert_eq!(gate.next(), Some(start + pause));
        assert!(!check(&mut gate, 9, "a", start + pause / 2));
        assert!(!check(&mut gate, 8, "b", start + pause));
        assert!(!check(&mut gate, 8, "b", start + pause * 3 / 2));
        assert!(check(&mut gate, 8, "b", start + pause * 2));
        assert_eq!(gate.next(), None);
    }

    #[test]
    fn reverted_removals_are_forgotten_and_small_ones_pass() {
        let start = Instant::now();
        let mut gate = RemovalGuard::new(50, Duration::from_secs(60));
        assert!(!check(&mut gate, 0, "a", start));
        assert!(check(&mut gate, 20, "c", start));
        assert!(!gate.open());
        let few = Counts {
            backends: 9,
            ..Counts::default()
        };
        let nothing = Counts::default();
        assert!(gate.check(Some(few), nothing, String::new, start).is_ok());
        assert!(gate.check(None, nothing, String::new, start).is_ok());
        let mut open = RemovalGuard::new(100, Duration::from_secs(60));
        assert!(check(&mut open, 0, "a", start));
    }

    #[test]
    fn last_listener_goes_only_after_source_persists() {
        let (start, pause) = (Instant::now(), Duration::from_secs(60));
        let (one, none) = (
            Counts {
                listeners: 1,
                ..Counts::default()
            },
            Counts::default(),
        );
        let mut gate = RemovalGuard::new(50, pause);
        let mut ask = |now| gate.check(Some(one), none, || "a".to_owned(), now);
        assert!(ask(start).unwrap_err().contains("the only listener"));
        assert!(ask(start + pause).is_ok());
        let mut open = RemovalGuard::new(100, pause);
        assert!(open.check(Some(one), none, String::new, start).is_ok());
    }
}
