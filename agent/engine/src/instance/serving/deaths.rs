//! Counts how often Envoy dies during a rollout. A new revision may be the cause.

use super::Serving;

#[derive(Debug, Default)]
pub(super) struct DeathCounter {
    /// The revision that is being rolled out, and whether this host may serve it.
    rollout: Option<(String, bool)>,
    /// Deaths before.
    before: u64,
}

impl Serving {
    pub(super) fn count_deaths(&mut self) {
        let total = self.instance.observed.borrow().counts.deaths();
        let deaths = self.deaths.count(self.selector.rollout(), total);
        self.instance.observed.send_if_modified(|observed| {
            let is_new = observed.deaths != deaths;
            observed.deaths = deaths;
            is_new
        });
    }
}

impl DeathCounter {
    /// Starts anew when the host may serve the revision, because earlier deaths have other causes.
    fn count(&mut self, rollout: Option<(&str, bool)>, total: u64) -> u64 {
        let known = self.rollout.as_ref();
        let known = known.map(|(digest, is_released)| (digest.as_str(), *is_released));
        if known != rollout {
            self.rollout = rollout.map(|(digest, is_released)| (digest.to_owned(), is_released));
            self.before = total;
        }
        if rollout.is_some() {
            total.saturating_sub(self.before)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_count_since_revision_is_released() {
        let mut counter = DeathCounter::default();
        assert_eq!(counter.count(None, 2), 0);
        assert_eq!(counter.count(None, 3), 0);
        assert_eq!(counter.count(Some(("a", false)), 3), 0);
        assert_eq!(counter.count(Some(("a", false)), 4), 1);
        assert_eq!(counter.count(Some(("a", true)), 4), 0);
        assert_eq!(counter.count(Some(("a", true)), 6), 2);
        assert_eq!(counter.count(Some(("b", true)), 6), 0);
        assert_eq!(counter.count(None, 7), 0);
    }
}
