//! Staged rollouts of bundles. No controller compares hosts, so each host waits until the stages
//! before its own have baked, counted from the creation of the bundle.

use sesame_proto::schema::Rollout;

use crate::update::Staging;

/// `created` is a Unix timestamp, or 0 if unknown.
pub(super) fn staging(rollout: Option<&Rollout>, created: u64, ring: Option<u8>) -> Staging {
    let stages = rollout.map_or(&[][..], |rollout| &rollout.stages);
    let before = ring.map_or(stages.len(), |ring| usize::from(ring.saturating_sub(1)));
    let before = &stages[..before.min(stages.len())];
    if before.is_empty() {
        return Staging::Immediate;
    }
    let bake: u64 = before.iter().map(|it| u64::from(it.bake_seconds)).sum();
    let pauses = before.iter().any(|stage| stage.pause);
    let opens = i64::try_from(created.saturating_add(bake)).ok();
    Staging::Ring {
        ring: before.len() + 1,
        opens: opens.filter(|_| !pauses && created > 0),
    }
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::RolloutStage;

    use super::*;

    #[test]
    fn ring_opens_after_earlier_stages_baked() {
        let stage = |bake_seconds, pause| RolloutStage {
            hosts: 1,
            bake_seconds,
            pause,
            ..RolloutStage::default()
        };
        let rollout = Rollout {
            stages: vec![stage(60, false), stage(600, false), stage(0, true)],
            ..Rollout::default()
        };
        let of = |created, ring| staging(Some(&rollout), created, ring);
        let opens = |ring, opens| Staging::Ring { ring, opens };
        assert_eq!(of(1000, Some(1)), Staging::Immediate);
        assert_eq!(of(1000, Some(2)), opens(2, Some(1060)));
        assert_eq!(of(1000, Some(3)), opens(3, Some(1660)));
        assert_eq!(of(1000, None), opens(4, None));
        assert_eq!(of(0, Some(2)), opens(2, None));
        assert_eq!(staging(None, 1000, None), Staging::Immediate);
    }
}
