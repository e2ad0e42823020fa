//! Reads from the manifest whether this host may serve the revision. Without a usable record, it
//! must wait, because a bad revision could otherwise reach all hosts.

use std::collections::BTreeMap;

use sesame_kinds::api::NamespacedName;
use sesame_proto::encoded::{EncodedSnapshot, Entry};
use sesame_proto::schema::rollout_record::Verdict;
use sesame_proto::schema::{Manifest, RolloutRecord};
use sesame_published::names::shard_name;

use crate::cluster::pieces::EndpointShard;
use crate::update::Staging;

pub(super) fn staging(manifest: &Manifest, config: &EncodedSnapshot, host: &str) -> Staging {
    let rollout = config.rest().rollout.as_ref();
    let stages = rollout.map_or(0, |rollout| rollout.stages.len());
    if stages == 0 {
        return Staging::Immediate;
    }
    let waits = |why: String, is_compared| Staging::Waits { why, is_compared };
    let Some(record) = &manifest.rollout else {
        let why = "the newest revision waits, because its manifest lacks the state of the rollout";
        return waits(why.to_owned(), false);
    };
    let RolloutRecord { digest, base, .. } = record;
    let verdict = record.verdict();
    match verdict {
        Verdict::Done if record.all => Staging::Immediate,
        Verdict::Undone => Staging::Undone(base.clone()),
        Verdict::Unknown => {
            let why = format!(
                "revision {digest} waits, because this agent does not know the state of its \
                 rollout; upgrade the agent"
            );
            waits(why, false)
        }
        Verdict::Baking | Verdict::Paused | Verdict::Held | Verdict::Done => {
            // Pauses may last for weeks, and each count is a write to the API server.
            let is_compared = verdict == Verdict::Baking;
            if record.releases(host) {
                return Staging::Released { is_compared };
            }
            let why = format!(
                "revision {digest} waits for its rollout, which is at stage {} of {stages}; \
                 endpoints and keys are current",
                record.number()
            );
            waits(why, is_compared)
        }
    }
}

/// Returns the endpoint sets that `config` does not use.
pub(super) fn others(
    gateway: &NamespacedName,
    manifest: &Manifest,
    live: &BTreeMap<String, EndpointShard>,
    config: &EncodedSnapshot,
) -> Vec<Entry> {
    let used = config.endpoint_entries();
    let shards = manifest.endpoints.iter();
    let shards = shards.filter_map(|it| live.get(&shard_name(gateway, &it.name)));
    let sets = shards.flat_map(|shard| &shard.sets);
    let is_used = |name: &str| used.binary_search_by(|it| it.name().cmp(name)).is_ok();
    let others: BTreeMap<&str, &Entry> = sets
        .filter(|set| !is_used(set.name()))
        .map(|set| (set.name(), set))
        .collect();
    others.into_values().cloned().collect()
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::{Rollout, RolloutStage, Snapshot};

    use super::*;

    fn config(stages: usize) -> EncodedSnapshot {
        let rollout = Rollout {
            stages: vec![RolloutStage::default(); stages],
            ..Rollout::default()
        };
        let snapshot = Snapshot {
            rollout: Some(rollout),
            ..Snapshot::default()
        };
        EncodedSnapshot::new(&snapshot, Vec::new())
    }

    fn of(verdict: i32, all: bool, host: &str) -> Staging {
        let record = RolloutRecord {
            digest: "new".to_owned(),
            base: "old".to_owned(),
            hosts: vec!["a".to_owned(), "c".to_owned()],
            all,
            verdict,
            ..RolloutRecord::default()
        };
        let manifest = Manifest {
            rollout: Some(record),
            ..Manifest::default()
        };
        staging(&manifest, &config(2), host)
    }

    #[test]
    fn only_released_hosts_may_serve_revision() {
        for verdict in [Verdict::Baking, Verdict::Paused, Verdict::Held] {
            let is_compared = verdict == Verdict::Baking;
            let released = Staging::Released { is_compared };
            assert_eq!(of(verdict.into(), false, "a"), released);
            let waiting = of(verdict.into(), false, "b");
            assert!(matches!(waiting, Staging::Waits { is_compared: it, .. } if it == is_compared));
        }
        let undone = Staging::Undone("old".to_owned());
        assert_eq!(of(Verdict::Undone.into(), false, "a"), undone);
        assert_eq!(of(Verdict::Done.into(), true, "b"), Staging::Immediate);
    }

    #[test]
    fn missing_or_unknown_record_makes_host_wait() {
        assert!(matches!(of(0, true, "a"), Staging::Waits { .. }));
        assert!(matches!(of(99, true, "a"), Staging::Waits { .. }));
        let without = Manifest::default();
        assert!(matches!(
            staging(&without, &config(1), "a"),
            Staging::Waits { .. }
        ));
        assert_eq!(staging(&without, &config(0), "a"), Staging::Immediate);
    }
}
