//! Computes the difference between two versions of a configuration from changed shards only.
//!
//! Never trust the result: the caller must apply it and verify the resulting revision.

use std::collections::BTreeSet;

use super::join::unpack;
use super::{MAX_SNAPSHOT_BYTES, check_digest};
use crate::delta::{BackendDelta, RouteTableDelta};
use crate::schema::{ShardRef, Snapshot};

/// Maximum number of changed shards. With more changes, joining all shards takes little longer.
pub const MAX_CHANGED_SHARDS: usize = 16;

/// Difference between two configurations.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardDelta {
    /// Changed virtual hosts.
    pub route_tables: RouteTableDelta,
    /// Added and removed backends.
    pub backends: BackendDelta,
    /// Size in bytes of all shards in memory after the change.
    pub size: u64,
}

/// Compares two configurations. `size` is the size of `before` in memory, in bytes, and `stored`
/// returns a shard's bytes by digest. Returns `None` if a shard is missing or damaged, or if
/// anything has changed besides virtual hosts and added or removed backends.
pub fn delta<'s>(
    before: &[ShardRef],
    size: u64,
    after: &[ShardRef],
    stored: impl Fn(&str) -> Option<&'s [u8]>,
) -> Option<ShardDelta> {
    let names: BTreeSet<&str> = after.iter().map(|shard| shard.name.as_str()).collect();
    if before.len() != after.len() || names.len() != after.len() {
        return None;
    }
    let open = |shard: &ShardRef| {
        let bytes = stored(&shard.sha256)?;
        check_digest(shard, bytes).ok()?;
        unpack(&shard.name, shard.size, bytes).ok()
    };
    let mut delta = ShardDelta {
        route_tables: RouteTableDelta::default(),
        backends: BackendDelta::default(),
        size,
    };
    let changed = before
        .iter()
        .zip(after)
        .filter(|(b, a)| b.sha256 != a.sha256);
    for (count, (before, after)) in changed.enumerate() {
        if count == MAX_CHANGED_SHARDS {
            return None;
        }
        let (before, less) = open(before)?;
        let (after, more) = open(after)?;
        delta.size = delta.size.checked_sub(less)?.checked_add(more)?;
        let (route_tables, backends) = between(before, after)?;
        delta.route_tables.extend(route_tables);
        delta.backends.extend(backends);
    }
    (delta.size <= MAX_SNAPSHOT_BYTES).then_some(delta)
}

fn between(mut before: Snapshot, mut after: Snapshot) -> Option<(RouteTableDelta, BackendDelta)> {
    let taken = |shard: &mut Snapshot| {
        let tables = std::mem::take(&mut shard.route_tables);
        (tables, std::mem::take(&mut shard.backends))
    };
    let (old_tables, old_backends) = taken(&mut before);
    let (new_tables, new_backends) = taken(&mut after);
    if before != after {
        return None;
    }
    let tables = RouteTableDelta::between(old_tables, new_tables)?;
    Some((tables, BackendDelta::between(old_backends, new_backends)?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost::Message as _;

    use super::*;
    use crate::delta::ChangedHost;
    use crate::digest::sha256;
    use crate::schema::{Backend, EndpointSet, Route, RouteTable, VirtualHost};
    use crate::shard::pack;

    fn host(domain: &str, route: &str) -> VirtualHost {
        VirtualHost {
            domain: domain.to_owned(),
            routes: vec![Route {
                name: route.to_owned(),
                ..Route::default()
            }],
            ..VirtualHost::default()
        }
    }

    fn piece(hosts: &[VirtualHost]) -> Snapshot {
        Snapshot {
            route_tables: vec![RouteTable {
                name: "http/80".to_owned(),
                virtual_hosts: hosts.to_vec(),
            }],
            backends: vec![Backend::default()],
            ..Snapshot::default()
        }
    }

    fn stored(pieces: &[Snapshot]) -> (Vec<ShardRef>, BTreeMap<String, Vec<u8>>) {
        let mut shards = BTreeMap::new();
        let references = pieces.iter().enumerate().map(|(index, piece)| {
            let bytes = pack("config", &piece.encode_to_vec())
                .unwrap()
                .bytes
                .to_vec();
            let sha256 = sha256(&bytes);
            shards.insert(sha256.clone(), bytes);
            ShardRef {
                name: format!("config-{index}"),
                sha256,
                size: 0,
            }
        });
        (references.collect(), shards)
    }

    fn changed(before: &[Snapshot], after: &[Snapshot], size: u64) -> Option<ShardDelta> {
        let (before, mut shards) = stored(before);
        let (after, more) = stored(after);
        shards.extend(more);
        delta(&before, size, &after, |sha256| {
            shards.get(sha256).map(Vec::as_slice)
        })
    }

    #[test]
    fn virtual_host_changes_are_found_with_their_size() {
        let before = [
            piece(&[host("a", "1")]),
            piece(&[host("b", "1"), host("c", "1")]),
        ];
        let mut after = before.clone();
        after[1] = piece(&[host("b", "1"), host("c", "longer")]);
        let change = ChangedHost {
            table: "http/80".to_owned(),
            before: host("c", "1"),
            after: host("c", "longer"),
        };
        let expected = ShardDelta {
            route_tables: [change].into_iter().collect(),
            backends: BackendDelta::default(),
            size: 1_000_005,
        };
        assert_eq!(changed(&before, &after, 1_000_000), Some(expected));
        let (grown, shrunk) = (MAX_SNAPSHOT_BYTES - 4, MAX_SNAPSHOT_BYTES - 5);
        assert_eq!(changed(&before, &after, grown), None);
        assert!(changed(&before, &after, shrunk).is_some());
        assert_eq!(
            changed(&before, &after, 0),
            None,
            "a limit below the previous size"
        );
    }

    #[test]
    fn other_changes_have_no_delta() {
        let first = piece(&[host("a", "1"), host("b", "1")]);
        let before = [first.clone(), piece(&[host("c", "1")])];
        let with = |change: &dyn Fn(&mut Snapshot)| {
            let mut after = before.clone();
            change(&mut after[0]);
            after
        };
        let cases = [
            with(&|s| s.gateway = "other".to_owned()),
            with(&|s| s.backends[0].endpoints = "other".to_owned()),
            with(&|s| s.backends.push(Backend::default())),
            with(&|s| s.endpoints.push(EndpointSet::default())),
            with(&|s| s.route_tables[0].name = "http/81".to_owned()),
            with(&|s| s.route_tables.clear()),
            with(&|s| s.route_tables[0].virtual_hosts.swap(0, 1)),
            with(&|s| s.route_tables[0].virtual_hosts.push(host("d", "1"))),
            with(&|s| s.route_tables[0].virtual_hosts[0].domain = "d".to_owned()),
        ];
        for after in cases {
            assert_eq!(changed(&before, &after, 1_000_000), None, "{after:?}");
        }
        assert_eq!(changed(&before, &before[..1], 1000), None, "fewer shards");

        // A reader would join one of the shards twice and omit the other.
        let (references, shards) = stored(&before);
        let mut twice = references.clone();
        twice[1].name.clone_from(&references[0].name);
        let get = |sha256: &str| shards.get(sha256).map(Vec::as_slice);
        assert!(delta(&references, 1000, &references, get).is_some());
        assert_eq!(delta(&references, 1000, &twice, get), None);

        let many = |route: &str| vec![piece(&[host("a", route)]); MAX_CHANGED_SHARDS + 1];
        assert_eq!(changed(&many("1"), &many("2"), 1000), None);
    }

    #[test]
    fn backend_changes_are_found_in_any_shard() {
        let backend = |name: &str| Backend {
            name: name.to_owned(),
            ..Backend::default()
        };
        let with = |names: &[&str]| Snapshot {
            backends: names.iter().map(|name| backend(name)).collect(),
            ..piece(&[host("a", "1")])
        };
        let before = [with(&["b", "c", "e"]), with(&["f"])];
        let after = [with(&["a", "c", "d"]), with(&["f", "g"])];
        let delta = changed(&before, &after, 1_000_000).expect("a difference");
        let names: Vec<&str> = delta.backends.added.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["a", "d", "g"]);
        assert_eq!(delta.backends.removed, ["b", "e"]);
        assert!(delta.route_tables.is_empty());

        let disordered = [with(&["c", "b", "e"]), with(&["f"])];
        assert_eq!(changed(&before, &disordered, 1_000_000), None);
        assert_eq!(changed(&disordered, &before, 1_000_000), None);
    }

    #[test]
    fn shards_with_wrong_digest_are_not_read() {
        let (before, mut shards) = stored(&[piece(&[host("a", "1")])]);
        let (after, more) = stored(&[piece(&[host("a", "2")])]);
        let (third, mut garbage) = stored(&[piece(&[host("a", "3")])]);
        shards.extend(more);
        let bytes = garbage.remove(&third[0].sha256).unwrap();
        for digest in [&before[0].sha256, &after[0].sha256] {
            let mut shards = shards.clone();
            shards.insert(digest.clone(), bytes.clone());
            let get = |sha256: &str| shards.get(sha256).map(Vec::as_slice);
            assert_eq!(delta(&before, 1000, &after, get), None);
        }
    }
}
