//! Counts how often Envoy dies during a rollout. A new revision may be the cause.

use super::Observed;

/// Deaths of Envoy since it serves its revision, or since the rollout began if that is later.
/// Recorded together with the accepted revision, so that a report never counts a death against
/// another revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeathCount {
    /// The revision that is being rolled out.
    rollout: Option<String>,
    /// Deaths before.
    before: u64,
}

impl DeathCount {
    pub(crate) fn follow(&mut self, rollout: Option<&str>, total: u64) {
        if self.rollout.as_deref() != rollout {
            self.rollout = rollout.map(str::to_owned);
            self.before = total;
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.rollout.is_some()
    }

    /// Earlier deaths have other causes than the revision that Envoy serves from now on.
    pub(super) fn restart(&mut self, total: u64) {
        self.before = total;
    }
}

impl Observed {
    /// Returns 0 while no revision is rolled out.
    pub(crate) fn deaths(&self) -> u64 {
        let DeathCount { rollout, before } = &self.death_count;
        match rollout {
            Some(_) => self.counts.deaths().saturating_sub(*before),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::ProcessReason;

    #[test]
    fn deaths_count_for_served_revision() {
        let mut observed = Observed::default();
        let die = |observed: &mut Observed| {
            observed.counts.record_process(ProcessReason::Death);
            observed.deaths()
        };
        assert_eq!(die(&mut observed), 0);
        observed.death_count.follow(Some("a"), 1);
        assert_eq!(die(&mut observed), 1);
        // Envoy accepts the revision.
        observed.death_count.restart(2);
        assert_eq!(observed.deaths(), 0);
        observed.death_count.follow(Some("a"), 2);
        assert_eq!(die(&mut observed), 1);
        observed.death_count.follow(Some("b"), 3);
        assert_eq!(observed.deaths(), 0);
        observed.death_count.follow(None, 3);
        assert_eq!(die(&mut observed), 0);
    }
}
