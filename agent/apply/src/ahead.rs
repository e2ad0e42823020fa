//! Selects the parts of a change that may be applied before the rest. Never combines clusters,
//! endpoints or route tables from different versions of the configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use itertools::EitherOrBoth;
use prost::Message as _;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use sesame_render::{Rendered, Resource};

use super::on_disk::{OnDisk, resources};
use super::plan::merge;
use super::removal::is_encrypted;
use sesame_render::xds::XdsKind;

const LOAD_ASSIGNMENT: u32 = 33;

/// If a change adds more clusters than this, the shares file (RTDS) must come first. Until it is
/// written, Envoy's default connection limit applies to the added clusters.
const MAX_BEFORE_SHARES: usize = 4;

/// Kinds of changes that are rendered but not applied yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each part of a change can wait independently"
)]
pub struct PendingChanges {
    /// At least one existing endpoint file changes.
    pub endpoints: bool,
    /// At least one existing route table changes.
    pub route_tables: bool,
    /// At least one cluster's inline endpoints change.
    pub inline_endpoints: bool,
    /// Anything else changes: clusters, listeners, keys, or the set of route tables.
    pub rest: bool,
}

impl PendingChanges {
    /// Compares the files on disk with the desired resources.
    pub fn of(old: &OnDisk, new: &Rendered) -> Self {
        let (inline_endpoints, clusters) = changed_clusters(old, &new.clusters);
        let (endpoints, _) = changed_files(old, new, XdsKind::Endpoints);
        let (route_tables, other_tables) = changed_files(old, new, XdsKind::RouteTable);
        let changes = |kind| {
            let (before, after) = (resources(&old.content, kind), resources(new, kind));
            !Arc::ptr_eq(before, after) && before != after
        };
        Self {
            endpoints,
            route_tables,
            inline_endpoints,
            rest: clusters
                || other_tables
                || changes(XdsKind::Listeners)
                || changes(XdsKind::Secret)
                || !old.unconfirmed.is_empty(),
        }
    }

    /// Returns true if route tables may be applied first, even if inline endpoints change as well.
    pub fn route_tables_go_ahead(self) -> bool {
        self.route_tables && !self.rest
    }
}

/// Returns true if a cluster may have to warm. Otherwise, callers skip the query for warming
/// clusters, which takes milliseconds with thousands of clusters.
pub(super) fn may_warm(old: &OnDisk, wanted: &[Resource]) -> bool {
    let waits = |pair: EitherOrBoth<&Resource, &Resource>| match pair {
        EitherOrBoth::Both(before, after) => {
            changed_cluster(before, after) == ChangedCluster::Form && waits_for_something(after)
        }
        EitherOrBoth::Right(new) => waits_for_something(new),
        EitherOrBoth::Left(_) => false,
    };
    !old.has_clusters || merge(&old.content.clusters, wanted).any(waits)
}

fn waits_for_something(cluster: &Resource) -> bool {
    let Ok(cluster) = Cluster::decode(&*cluster.bytes) else {
        return true;
    };
    let is_static = match cluster.cluster_discovery_type {
        Some(ClusterDiscoveryType::Type(number)) => number == DiscoveryType::Static as i32,
        Some(ClusterDiscoveryType::ClusterType(_)) => false,
        None => true,
    };
    !is_static
        || cluster.load_assignment.is_none()
        || cluster.eds_cluster_config.is_some()
        || is_encrypted(&cluster)
        || !cluster.health_checks.is_empty()
}

/// Returns whether any content differs, and whether any file was added or removed.
fn changed_files(old: &OnDisk, new: &Rendered, kind: XdsKind) -> (bool, bool) {
    let (before, after) = (resources(&old.content, kind), resources(new, kind));
    if Arc::ptr_eq(before, after) {
        return (false, false);
    }
    let (mut content, mut names) = (false, false);
    for pair in merge(before, &**after) {
        match pair {
            EitherOrBoth::Both(before, after) => content |= before.bytes != after.bytes,
            EitherOrBoth::Left(_) | EitherOrBoth::Right(_) => names = true,
        }
    }
    (content, names)
}

/// Returns whether inline endpoints differ, and whether anything else does.
fn changed_clusters(old: &OnDisk, wanted: &[Resource]) -> (bool, bool) {
    // Skip the comparison of thousands of clusters.
    if std::ptr::eq(old.content.clusters.as_ref(), wanted) {
        return (false, false);
    }
    let mut inline = false;
    for pair in merge(&old.content.clusters, wanted) {
        match pair {
            EitherOrBoth::Both(before, after) => match changed_cluster(before, after) {
                ChangedCluster::Nowhere => {}
                ChangedCluster::InlineEndpoints => inline = true,
                ChangedCluster::Form => return (inline, true),
            },
            EitherOrBoth::Left(gone) if old.unused.contains(&gone.name) => {}
            EitherOrBoth::Left(_) | EitherOrBoth::Right(_) => return (inline, true),
        }
    }
    (inline, false)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangedCluster {
    Nowhere,
    InlineEndpoints,
    Form,
}

fn changed_cluster(before: &Resource, after: &Resource) -> ChangedCluster {
    if before.bytes == after.bytes {
        return ChangedCluster::Nowhere;
    }
    let forms = (
        without(&before.bytes, LOAD_ASSIGNMENT),
        without(&after.bytes, LOAD_ASSIGNMENT),
    );
    match forms {
        (Some(before), Some(after)) if before == after => ChangedCluster::InlineEndpoints,
        _ => ChangedCluster::Form,
    }
}

/// Returns `None` if the message is malformed.
fn without(mut message: &[u8], left_out: u32) -> Option<Vec<&[u8]>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let whole = message;
        let (number, wire) = decode_key(&mut message).ok()?;
        skip_field(wire, number, &mut message, DecodeContext::default()).ok()?;
        if number != left_out {
            fields.push(whole.get(..whole.len() - message.len())?);
        }
    }
    Some(fields)
}

pub(super) fn goes_ahead_of_shares(old: &OnDisk, new: &Rendered) -> bool {
    let (before, now) = (&old.content.clusters, &new.clusters);
    let come = || merge(before, &**now).filter(|pair| matches!(pair, EitherOrBoth::Right(_)));
    let few_come = || come().take(MAX_BEFORE_SHARES + 1).count() <= MAX_BEFORE_SHARES;
    old.content.listeners == new.listeners && (Arc::ptr_eq(before, now) || few_come())
}

/// Returns the content on disk with unchanged clusters' new endpoints, or `None` if no endpoints
/// differ.
pub fn endpoints_ahead(old: &OnDisk, new: &Rendered) -> Option<Rendered> {
    if Arc::ptr_eq(&old.content.endpoints, &new.endpoints) {
        return None;
    }
    let reformed = reformed(&old.content.clusters, &new.clusters);
    let mut changed = false;
    let endpoints: Arc<[Resource]> = merge(&old.content.endpoints, &*new.endpoints)
        .filter_map(|pair| match pair {
            EitherOrBoth::Both(before, after)
                if before.bytes != after.bytes && !reformed.contains(&before.name) =>
            {
                changed = true;
                Some(after.clone())
            }
            EitherOrBoth::Both(before, _) | EitherOrBoth::Left(before) => Some(before.clone()),
            EitherOrBoth::Right(_) => None,
        })
        .collect();
    changed.then(|| Rendered {
        endpoints,
        shares: new.shares.clone(),
        fleet_hosts: hosts_ahead(old, new),
        ..old.content.clone()
    })
}

/// Returns the content on disk with the new route tables, or `None` if they must not be applied
/// first.
pub fn route_tables_ahead(
    old: &OnDisk,
    new: &Rendered,
    waiting: PendingChanges,
) -> Option<Rendered> {
    waiting.route_tables_go_ahead().then(|| Rendered {
        route_tables: Arc::clone(&new.route_tables),
        shares: new.shares.clone(),
        fleet_hosts: hosts_ahead(old, new),
        ..old.content.clone()
    })
}

/// Returns 0, which keeps the last number, if filters have changed: more hosts may need larger
/// buckets, because a request takes a token for each host.
fn hosts_ahead(old: &OnDisk, new: &Rendered) -> u32 {
    if old.content.filters == new.filters {
        new.fleet_hosts
    } else {
        0
    }
}

fn reformed(old: &Arc<[Resource]>, new: &Arc<[Resource]>) -> BTreeSet<String> {
    if Arc::ptr_eq(old, new) {
        return BTreeSet::new();
    }
    let changed = merge(old, &**new).filter_map(|pair| match pair {
        EitherOrBoth::Both(before, after) => (before.bytes != after.bytes).then_some(before),
        EitherOrBoth::Left(gone) => Some(gone),
        EitherOrBoth::Right(_) => None,
    });
    changed
        .filter_map(|resource| Cluster::decode(&*resource.bytes).ok()?.eds_cluster_config)
        .map(|eds| eds.service_name)
        .collect()
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::cluster::EdsClusterConfig;
    use envoy_types::pb::envoy::config::core::v3::{HealthCheck, TransportSocket};
    use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;

    use super::*;

    fn resources(all: &[(&str, Vec<u8>)]) -> Arc<[Resource]> {
        all.iter()
            .map(|(name, bytes)| Resource {
                name: (*name).to_owned(),
                bytes: bytes.clone().into(),
            })
            .collect()
    }

    fn cluster(name: &str, eds: &str, alternative: &str) -> Vec<u8> {
        Cluster {
            name: name.to_owned(),
            alt_stat_name: alternative.to_owned(),
            eds_cluster_config: Some(EdsClusterConfig {
                eds_config: None,
                service_name: eds.to_owned(),
            }),
            ..Cluster::default()
        }
        .encode_to_vec()
    }

    #[test]
    fn shares_precede_new_listeners_or_many_more_clusters() {
        let of = |listeners: &[&str], clusters: std::ops::Range<u32>| {
            let all = |names: &[String]| {
                let all: Vec<_> = names.iter().map(|name| (&**name, vec![1])).collect();
                resources(&all)
            };
            let listeners: Vec<_> = listeners.iter().map(|it| (*it).to_owned()).collect();
            let clusters: Vec<_> = clusters.map(|number| format!("c{number}")).collect();
            Rendered {
                listeners: all(&listeners),
                clusters: all(&clusters),
                ..Rendered::default()
            }
        };
        let old = OnDisk {
            content: of(&["a"], 0..4),
            ..OnDisk::default()
        };
        for (listeners, clusters, ahead) in [
            (&["a"][..], 0..4, true),
            (&["a"], 0..8, true),
            (&["a"], 3..8, true),
            (&["a"], 0..9, false),
            (&["a"], 4..9, false),
            (&["a", "b"], 0..4, false),
        ] {
            let new = of(listeners, clusters.clone());
            let found = goes_ahead_of_shares(&old, &new);
            assert_eq!(found, ahead, "{listeners:?} {clusters:?}");
        }
    }

    #[test]
    fn number_of_hosts_waits_for_changed_filters() {
        let of = |bytes: u8, fleet_hosts| Rendered {
            endpoints: resources(&[("e", vec![bytes])]),
            filters: resources(&[("rate_limits", vec![bytes])]),
            fleet_hosts,
            ..Rendered::default()
        };
        let old = OnDisk {
            content: of(1, 0),
            ..OnDisk::default()
        };
        let same = Rendered {
            filters: resources(&[("rate_limits", vec![1])]),
            ..of(2, 5)
        };
        for (new, expected) in [(same, 5), (of(2, 5), 0)] {
            let ahead = endpoints_ahead(&old, &new).expect("other endpoints");
            assert_eq!(ahead.fleet_hosts, expected);
        }
    }

    #[test]
    fn only_endpoints_of_unchanged_clusters_go_ahead() {
        let old = Rendered {
            clusters: resources(&[
                ("a", cluster("a", "ea", "")),
                ("b", cluster("b", "eb", "")),
                ("c", cluster("c", "ec", "")),
            ]),
            endpoints: resources(&[
                ("ea", vec![1]),
                ("eb", vec![1]),
                ("ec", vec![1]),
                ("ed", vec![1]),
            ]),
            route_tables: resources(&[("r", vec![1])]),
            ..Rendered::default()
        };
        let new = Rendered {
            clusters: resources(&[
                ("a", cluster("a", "ea", "")),
                ("b", cluster("b", "eb", "other")),
                ("z", cluster("z", "ez", "")),
            ]),
            endpoints: resources(&[
                ("ea", vec![2]),
                ("eb", vec![2]),
                ("ec", vec![2]),
                ("ez", vec![2]),
            ]),
            route_tables: resources(&[("r", vec![2])]),
            ..Rendered::default()
        };
        let on_disk = |content: &Rendered| OnDisk {
            content: content.clone(),
            ..OnDisk::default()
        };
        let ahead = endpoints_ahead(&on_disk(&old), &new).expect("endpoints");
        let encoded: Vec<(&str, &[u8])> = ahead
            .endpoints
            .iter()
            .map(|it| (it.name.as_str(), &*it.bytes))
            .collect();
        let expected: [(&str, &[u8]); 4] = [("ea", &[2]), ("eb", &[1]), ("ec", &[1]), ("ed", &[1])];
        assert_eq!(encoded, expected);
        assert!(Arc::ptr_eq(&ahead.route_tables, &old.route_tables));
        assert!(Arc::ptr_eq(&ahead.clusters, &old.clusters));
        assert_eq!(endpoints_ahead(&on_disk(&ahead), &new), None);
    }

    #[test]
    fn clusters_used_at_once_are_not_awaited() {
        let at_once = Cluster {
            name: "n".to_owned(),
            load_assignment: Some(ClusterLoadAssignment::default()),
            ..Cluster::default()
        };
        let old = OnDisk {
            content: Rendered {
                clusters: resources(&[("c", cluster("c", "e", ""))]),
                ..Rendered::default()
            },
            has_clusters: true,
            ..OnDisk::default()
        };
        let warms = |all: &[(&str, Vec<u8>)]| may_warm(&old, &resources(all));
        let kept = || ("c", cluster("c", "e", ""));
        assert!(!warms(&[kept()]));
        assert!(!warms(&[]));
        assert!(!warms(&[kept(), ("n", at_once.encode_to_vec())]));
        assert!(
            !warms(&[("c", at_once.encode_to_vec())]),
            "the cluster no longer needs its endpoint file"
        );
        assert!(
            warms(&[("c", cluster("c", "e", "other"))]),
            "the cluster rereads its endpoint file"
        );
        let waiting = [
            Cluster {
                cluster_discovery_type: Some(ClusterDiscoveryType::Type(
                    DiscoveryType::StrictDns as i32,
                )),
                ..at_once.clone()
            },
            Cluster {
                transport_socket: Some(TransportSocket::default()),
                ..at_once.clone()
            },
            Cluster {
                health_checks: vec![HealthCheck::default()],
                ..at_once.clone()
            },
            Cluster::decode(&*cluster("n", "e", "")).expect("a cluster"),
        ];
        for cluster in waiting {
            assert!(
                warms(&[kept(), ("n", cluster.encode_to_vec())]),
                "{cluster:?}"
            );
        }
        let first = OnDisk::default();
        assert!(may_warm(
            &first,
            &resources(&[("n", at_once.encode_to_vec())])
        ));
    }

    #[test]
    fn route_tables_go_ahead_of_inline_endpoints_only() {
        let inline = |address: &str| {
            let mut cluster = Cluster::decode(&*cluster("c", "", "x")).expect("a cluster");
            cluster.eds_cluster_config = None;
            cluster.load_assignment = Some(ClusterLoadAssignment {
                cluster_name: address.to_owned(),
                ..ClusterLoadAssignment::default()
            });
            cluster.encode_to_vec()
        };
        let old = Rendered {
            clusters: resources(&[("a", cluster("a", "ea", "")), ("c", inline("1"))]),
            endpoints: resources(&[("ea", vec![1])]),
            route_tables: resources(&[("r", vec![1])]),
            listeners: resources(&[("l", vec![1])]),
            ..Rendered::default()
        };
        let on_disk = OnDisk {
            content: old.clone(),
            ..OnDisk::default()
        };
        let waiting = |new: &Rendered| PendingChanges::of(&on_disk, new);
        assert_eq!(waiting(&old), PendingChanges::default());
        let routes = Rendered {
            route_tables: resources(&[("r", vec![2])]),
            clusters: resources(&[("a", cluster("a", "ea", "")), ("c", inline("2"))]),
            ..old.clone()
        };
        let both = PendingChanges {
            route_tables: true,
            inline_endpoints: true,
            ..PendingChanges::default()
        };
        assert_eq!(waiting(&routes), both);
        let ahead = route_tables_ahead(&on_disk, &routes, both).expect("route tables");
        assert!(Arc::ptr_eq(&ahead.route_tables, &routes.route_tables));
        assert!(Arc::ptr_eq(&ahead.clusters, &old.clusters));
        let others = [
            resources(&[("a", cluster("a", "ea", "")), ("c", cluster("c", "", "y"))]),
            resources(&[("a", cluster("a", "other", "")), ("c", inline("2"))]),
            resources(&[("a", cluster("a", "ea", ""))]),
            resources(&[
                ("a", cluster("a", "ea", "")),
                ("b", vec![]),
                ("c", inline("1")),
            ]),
        ];
        let others = others.map(|clusters| Rendered {
            clusters,
            ..routes.clone()
        });
        let listeners = Rendered {
            listeners: resources(&[("l", vec![2])]),
            ..routes.clone()
        };
        let tables = Rendered {
            route_tables: resources(&[("r", vec![2]), ("s", vec![1])]),
            ..old.clone()
        };
        for other in others.iter().chain([&listeners, &tables]) {
            let waiting = waiting(other);
            assert!(waiting.rest, "{other:?}");
            assert_eq!(route_tables_ahead(&on_disk, other, waiting), None);
        }
    }

    #[test]
    fn cluster_without_endpoints_encodes_like_envoy_types() {
        let mut full = Cluster::decode(&*cluster("c", "e", "x")).expect("a cluster");
        let bare = full.encode_to_vec();
        full.load_assignment = Some(ClusterLoadAssignment::default());
        let full = full.encode_to_vec();
        assert_ne!(full, bare);
        assert_eq!(without(&full, LOAD_ASSIGNMENT), without(&bare, 0));
        assert_eq!(without(&[0xff], LOAD_ASSIGNMENT), None);
    }
}
