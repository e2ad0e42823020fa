//! The virtual hosts in which two versions of a configuration differ, from those of their shards that differ.
//!
//! It says nothing of versions that differ in more, and vouches for nothing: whoever puts these virtual hosts in their
//! places has to prove the revision of what comes of it. Where there is no outcome the whole is to be joined.

use std::collections::BTreeSet;

use super::join::unpack_named;
use super::{MAX_SNAPSHOT_BYTES, check_digest};
use crate::other_hosts::other_hosts;
use crate::schema::{ShardRef, Snapshot, VirtualHost};

/// The most shards that may differ: with more, it is not much less work than to join all.
pub const MAX_CHANGED_SHARDS: usize = 16;

/// What differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Virtual hosts as they are after the change, each with the name of its table.
    pub hosts: Vec<(String, VirtualHost)>,
    /// How much memory the values of all shards take then.
    pub size: u64,
}

/// The virtual hosts in which a configuration that was joined from `before`, and took `size` bytes of memory,
/// differs from the one of `after`; `stored` has shards by their digest. None if they differ in anything else, or where a
/// virtual host is.
pub fn changed_hosts<'s>(
    before: &[ShardRef],
    size: u64,
    after: &[ShardRef],
    stored: impl Fn(&str) -> Option<&'s [u8]>,
) -> Option<Changed> {
    let names: BTreeSet<&str> = after.iter().map(|shard| shard.name.as_str()).collect();
    if before.len() != after.len() || names.len() != after.len() {
        return None;
    }
    let open = |shard: &ShardRef| {
        let bytes = stored(&shard.sha256)?;
        check_digest(shard, bytes).ok()?;
        unpack_named(shard, bytes).ok()
    };
    let mut changed = Changed {
        hosts: Vec::new(),
        size,
    };
    let differ = before
        .iter()
        .zip(after)
        .filter(|(b, a)| b.sha256 != a.sha256);
    for (count, (before, after)) in differ.enumerate() {
        if count == MAX_CHANGED_SHARDS {
            return None;
        }
        let (before, less) = open(before)?;
        let (after, more) = open(after)?;
        changed.size = changed.size.checked_sub(less)?.checked_add(more)?;
        compare(before, after, &mut changed.hosts)?;
    }
    (changed.size <= MAX_SNAPSHOT_BYTES).then_some(changed)
}

/// Compares two versions of a shard.
fn compare(
    mut before: Snapshot,
    mut after: Snapshot,
    hosts: &mut Vec<(String, VirtualHost)>,
) -> Option<()> {
    let old = std::mem::take(&mut before.route_tables);
    let new = std::mem::take(&mut after.route_tables);
    if before != after {
        return None;
    }
    let others = other_hosts(old, new)?;
    hosts.extend(others.into_iter().map(|other| (other.table, other.after)));
    Some(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost::Message as _;

    use super::*;
    use crate::digest::sha256;
    use crate::schema::{Backend, EndpointSet, Route, RouteTable};
    use crate::shard::pack;

    fn host(domain: &str, route: &str) -> VirtualHost {
        VirtualHost {
            domain: domain.to_owned(),
            routes: vec![Route {
                name: route.to_owned(),
                ..Route::default()
            }],
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

    /// Stored shards of these pieces, by their digest too.
    fn stored(pieces: &[Snapshot]) -> (Vec<ShardRef>, BTreeMap<String, Vec<u8>>) {
        let mut shards = BTreeMap::new();
        let references = pieces.iter().enumerate().map(|(index, piece)| {
            let bytes = pack("config", &piece.encode_to_vec()).unwrap().to_vec();
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

    fn changed(before: &[Snapshot], after: &[Snapshot], size: u64) -> Option<Changed> {
        let (before, mut shards) = stored(before);
        let (after, others) = stored(after);
        shards.extend(others);
        changed_hosts(&before, size, &after, |sha256| {
            shards.get(sha256).map(Vec::as_slice)
        })
    }

    #[test]
    fn virtual_hosts_that_differ_are_told_and_what_they_take() {
        let before = [
            piece(&[host("a", "1")]),
            piece(&[host("b", "1"), host("c", "1")]),
        ];
        let mut after = before.clone();
        after[1] = piece(&[host("b", "1"), host("c", "longer")]);
        let expected = Changed {
            hosts: vec![("http/80".to_owned(), host("c", "longer"))],
            size: 1_000_005,
        };
        assert_eq!(changed(&before, &after, 1_000_000), Some(expected));
        let (grown, shrunk) = (MAX_SNAPSHOT_BYTES - 4, MAX_SNAPSHOT_BYTES - 5);
        assert_eq!(changed(&before, &after, grown), None);
        assert!(changed(&before, &after, shrunk).is_some());
        assert_eq!(
            changed(&before, &after, 0),
            None,
            "less than what they were"
        );
    }

    #[test]
    fn what_differs_in_more_has_no_outcome() {
        let first = piece(&[host("a", "1"), host("b", "1")]);
        let before = [first.clone(), piece(&[host("c", "1")])];
        let with = |change: &dyn Fn(&mut Snapshot)| {
            let mut after = before.clone();
            change(&mut after[0]);
            after
        };
        let cases = [
            with(&|s| s.gateway = "other".to_owned()),
            with(&|s| s.backends.clear()),
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
        assert_eq!(changed(&before, &before[..1], 1000), None, "a shard less");

        // Of a name that two have, one would be joined twice.
        let (references, shards) = stored(&before);
        let mut twice = references.clone();
        twice[1].name.clone_from(&references[0].name);
        let get = |sha256: &str| shards.get(sha256).map(Vec::as_slice);
        assert!(changed_hosts(&references, 1000, &references, get).is_some());
        assert_eq!(changed_hosts(&references, 1000, &twice, get), None);

        let many = |route: &str| vec![piece(&[host("a", route)]); MAX_CHANGED_SHARDS + 1];
        assert_eq!(changed(&many("1"), &many("2"), 1000), None);
    }

    #[test]
    fn bytes_that_do_not_have_the_digest_are_not_looked_into() {
        let (before, mut shards) = stored(&[piece(&[host("a", "1")])]);
        let (after, others) = stored(&[piece(&[host("a", "2")])]);
        let (third, mut garbage) = stored(&[piece(&[host("a", "3")])]);
        shards.extend(others);
        let bytes = garbage.remove(&third[0].sha256).unwrap();
        for digest in [&before[0].sha256, &after[0].sha256] {
            let mut shards = shards.clone();
            shards.insert(digest.clone(), bytes.clone());
            let get = |sha256: &str| shards.get(sha256).map(Vec::as_slice);
            assert_eq!(changed_hosts(&before, 1000, &after, get), None);
        }
    }
}
