//! Endpoints that may go ahead of the rest of a change: where they are is known now, and the rest can wait for its turn.
//!
//! Pure. Must never bring a cluster endpoints that are meant for another form of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use itertools::EitherOrBoth;
use prost::Message as _;
use sesame_render::{Rendered, Resource};

use super::on_disk::OnDisk;
use super::plan::merge;

/// Returns what is on disk, with the newer endpoints of clusters that stay as they are; none if there are none.
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
        ..old.content.clone()
    })
}

/// Returns the names of endpoint files whose clusters change.
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
    fn endpoints_of_clusters_that_stay_go_ahead_and_nothing_else() {
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
        let told: Vec<(&str, &[u8])> = ahead
            .endpoints
            .iter()
            .map(|it| (it.name.as_str(), &*it.bytes))
            .collect();
        let expected: [(&str, &[u8]); 4] = [("ea", &[2]), ("eb", &[1]), ("ec", &[1]), ("ed", &[1])];
        assert_eq!(told, expected);
        assert!(Arc::ptr_eq(&ahead.route_tables, &old.route_tables));
        assert!(Arc::ptr_eq(&ahead.clusters, &old.clusters));
        assert_eq!(endpoints_ahead(&on_disk(&ahead), &new), None);
    }
}
