//! Keeps publishing endpoints that only the previous revision uses, until a rolled out revision is
//! replaced. Hosts that wait for a rollout, or return from one, would otherwise lose them.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::digest::canonicalize;
use sesame_proto::encoded::{EncodedSnapshot, Entry};
use sesame_proto::schema::EndpointSet;

use super::publications::Publications;
use crate::publish::RolloutNotes;
use sesame_kinds::api::NamespacedName;
use sesame_resolver::ResolvedGateway;

/// Names of the endpoint sets that were published before this controller started.
pub(crate) type PublishedSets = BTreeMap<NamespacedName, BTreeSet<String>>;

impl Publications {
    /// Adds the sets to the Gateways with stages. `current` returns the sets of
    /// Services.
    pub(super) fn carry(
        &mut self,
        gateways: &mut [ResolvedGateway],
        rollouts: &RolloutNotes,
        current: impl Fn(&BTreeSet<NamespacedName>) -> Vec<EndpointSet>,
    ) {
        for resolved in gateways {
            let ResolvedGateway {
                gateway, snapshot, ..
            } = resolved;
            let stages = snapshot.rollout.as_ref().map(|rollout| &rollout.stages);
            if stages.is_none_or(Vec::is_empty) {
                continue;
            }
            canonicalize(snapshot);
            let mut others = self.published_sets.remove(gateway).unwrap_or_default();
            if let Some(splitter) = self.splitters.get(gateway) {
                let before = splitter.snapshot();
                let digest = before.staged_digest();
                let note = rollouts.get(gateway);
                let is_done = note.is_some_and(|note| note.is_done && note.digest == digest);
                let now = EncodedSnapshot::new(snapshot, Vec::new());
                if is_done && now.staged_digest() != digest {
                    // No host has an older revision than this one.
                    let used = before.used_endpoints().into_iter();
                    others.extend(used.map(str::to_owned));
                } else {
                    let published = before.endpoint_entries().iter();
                    others.extend(published.map(Entry::name).map(str::to_owned));
                }
            }
            for set in &snapshot.endpoints {
                others.remove(&set.name);
            }
            if others.is_empty() {
                continue;
            }
            let services = others.iter().filter_map(|name| service_of(name)).collect();
            let sets = current(&services).into_iter();
            snapshot
                .endpoints
                .extend(sets.filter(|set| others.contains(&set.name)));
        }
    }
}

/// Parses `Service/namespace/name/port`.
fn service_of(set: &str) -> Option<NamespacedName> {
    let mut parts = set.strip_prefix("Service/")?.split('/');
    Some(NamespacedName::new(parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use sesame_kinds::world::World;
    use sesame_proto::schema::{Backend, Endpoint, Rollout, RolloutStage, Snapshot};

    use super::*;
    use crate::publish::DesiredPublication;

    fn gateway() -> NamespacedName {
        NamespacedName::new("ns", "edge")
    }

    fn sets(services: &[&str]) -> Vec<EndpointSet> {
        let set = |service: &&str| EndpointSet {
            name: format!("Service/ns/{service}/80"),
            endpoints: vec![Endpoint::default()],
            ..EndpointSet::default()
        };
        services.iter().map(set).collect()
    }

    fn resolved(service: &str) -> ResolvedGateway {
        let endpoints = sets(&[service]);
        let backend = Backend {
            name: endpoints[0].name.clone(),
            endpoints: endpoints[0].name.clone(),
            ..Backend::default()
        };
        let stages = vec![RolloutStage {
            hosts: 1,
            ..RolloutStage::default()
        }];
        ResolvedGateway {
            gateway: gateway(),
            snapshot: Snapshot {
                gateway: "Gateway/ns/edge".to_owned(),
                backends: vec![backend],
                endpoints,
                rollout: Some(Rollout {
                    stages,
                    ..Rollout::default()
                }),
                ..Snapshot::default()
            },
            keys: Vec::new(),
        }
    }

    /// Returns the digest, and the Services whose endpoints are published.
    fn build(
        publications: &mut Publications,
        service: &str,
        notes: &RolloutNotes,
    ) -> (String, Vec<String>) {
        let mut gateways = [resolved(service)];
        let current = |services: &BTreeSet<NamespacedName>| {
            let names: Vec<&str> = services.iter().map(|it| it.name.as_str()).collect();
            sets(&names)
        };
        publications.carry(&mut gateways, notes, current);
        let [gateway_now] = gateways;
        let published = gateway_now.snapshot.endpoints.iter();
        let mut published: Vec<String> = published
            .filter_map(|set| Some(service_of(&set.name)?.name))
            .collect();
        published.sort();
        let names = BTreeSet::from([gateway()]);
        let settings = BTreeMap::new();
        let all = vec![gateway_now];
        let (desired, _) = publications.build(all, names, &settings, &World::default());
        let Some(DesiredPublication::Publish(publication)) = desired.get(&gateway()) else {
            panic!("{desired:?}");
        };
        let staged = publication.staged.as_ref().expect("stages");
        (staged.digest.clone(), published)
    }

    #[test]
    fn endpoints_of_previous_revision_stay_until_next_rollout() {
        let mut publications = Publications::default();
        let old = BTreeSet::from(["Service/ns/old/80".to_owned()]);
        publications.published_sets.insert(gateway(), old);
        let mut notes = RolloutNotes::new();
        let (_, published) = build(&mut publications, "a", &notes);
        assert_eq!(published, ["a", "old"], "published before the restart");
        let (digest, published) = build(&mut publications, "b", &notes);
        assert_eq!(published, ["a", "b", "old"]);
        let note = notes.entry(gateway()).or_default();
        (note.digest, note.is_done) = (digest, true);
        let (_, published) = build(&mut publications, "b", &notes);
        assert_eq!(published, ["a", "b", "old"], "the rollout may be undone");
        let (_, published) = build(&mut publications, "c", &notes);
        assert_eq!(published, ["b", "c"]);
    }
}
