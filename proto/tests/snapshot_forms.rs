//! Tests that every stored or updated form of a snapshot restores to the same snapshot.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sesame_proto::delta::{
    BackendDelta, ChangedHost, EndpointDelta, GatewayDelta, RouteTableDelta,
};
use sesame_proto::digest::{canonicalize, revision};
use sesame_proto::encoded::{EncodedSnapshot, canonical_endpoint_entries};
use sesame_proto::schema::{
    Backend, Edge, Endpoint, EndpointSet, Forward, KeyRef, Listener, PathMatch, Port, Route,
    RouteTable, Snapshot, VirtualHost, WeightedBackend, path_match, route,
};
use sesame_proto::shard::{ShardError, Splitter, join, join_config, split};

fn snapshot(hosts: usize) -> Snapshot {
    let mut snapshot = Snapshot {
        gateway: "Gateway/default/web".to_owned(),
        edge: Some(Edge {
            keep_repeated_slashes: true,
            ..Edge::default()
        }),
        ports: vec![Port {
            transport: 0,
            port: 80,
            listeners: vec![Listener {
                name: "Gateway/default/web/listeners/http".to_owned(),
                route_table: "http/80".to_owned(),
                ..Listener::default()
            }],
            inside: 8080,
            proxy_protocol: 0,
            http3: false,
            client_address: None,
            edge: None,
        }],
        keys: vec![KeyRef {
            name: "Secret/default/cert".to_owned(),
            digest: "00".to_owned(),
            ..KeyRef::default()
        }],
        ..Snapshot::default()
    };
    let mut table = RouteTable {
        name: "http/80".to_owned(),
        virtual_hosts: Vec::new(),
    };
    for index in 0..hosts {
        let service = format!("Service/default/s{index}/80");
        table.virtual_hosts.push(VirtualHost {
            domain: format!("host{index}.example.com"),
            routes: vec![Route {
                name: format!("HTTPRoute/default/r{index}/rules/0/matches/0"),
                path: Some(PathMatch {
                    kind: Some(path_match::Kind::Prefix(String::new())),
                }),
                action: Some(route::Action::Forward(Forward {
                    backends: vec![WeightedBackend {
                        backend: service.clone(),
                        weight: 1,
                        ..WeightedBackend::default()
                    }],
                    ..Forward::default()
                })),
                ..Route::default()
            }],
            ..VirtualHost::default()
        });
        snapshot.backends.push(Backend {
            name: service.clone(),
            endpoints: service.clone(),
            ..Backend::default()
        });
        snapshot.endpoints.push(EndpointSet {
            name: service,
            endpoints: vec![Endpoint {
                address: format!("10.0.{}.{}", index / 250, index % 250),
                port: 8080,
                ..Endpoint::default()
            }],
            ..EndpointSet::default()
        });
    }
    snapshot.route_tables.push(table);
    canonicalize(&mut snapshot);
    snapshot
}

fn encoded(snapshot: &Snapshot) -> EncodedSnapshot {
    EncodedSnapshot::new(snapshot, Vec::new())
}

fn stored(sharded: &sesame_proto::shard::Sharded) -> BTreeMap<String, Vec<u8>> {
    sharded
        .shards
        .iter()
        .map(|shard| (shard.name.clone(), shard.bytes.to_vec()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn shards_join_to_snapshot_in_any_order(hosts in 0_usize..400, seed in any::<u64>()) {
        let original = snapshot(hosts);
        let mut shuffled = original.clone();
        let rotate = usize::try_from(seed % 97).unwrap();
        shuffled.backends.rotate_left(rotate.min(hosts));
        shuffled.endpoints.reverse();
        shuffled.route_tables[0].virtual_hosts.rotate_left(rotate.min(hosts));
        prop_assert_eq!(revision(&shuffled), revision(&original));
        let sharded = split(&shuffled).unwrap();
        prop_assert_eq!(&sharded, &split(&original).unwrap());
        // Shards do not contain route tables that have no virtual hosts.
        if hosts > 0 {
            let stored = stored(&sharded);
            let joined = join_config(&sharded.manifest, &stored).unwrap();
            let sets = canonical_endpoint_entries(original.endpoints.clone());
            prop_assert_eq!(joined.with_endpoints(sets), encoded(&original));
            prop_assert_eq!(join(&sharded.manifest, &stored).unwrap(), original);
        }
    }

    #[test]
    fn reused_splitter_gives_same_result(
        steps in prop::collection::vec((0_usize..600, any::<u16>(), 0_usize..40), 1..6)
    ) {
        let mut splitter = Splitter::default();
        for (hosts, edit, endpoints) in steps {
            let mut next = snapshot(hosts);
            for host in next.route_tables[0].virtual_hosts.iter_mut().take(usize::from(edit % 3)) {
                host.routes[0].method = format!("M{edit}");
            }
            prop_assert_eq!(splitter.split(&encoded(&next)).unwrap(), split(&next).unwrap());

            // One of the sets does not belong to any backend.
            let changed: Vec<EndpointSet> = (0..=endpoints)
                .map(|n| EndpointSet {
                    name: format!("Service/default/s{}/80", usize::from(edit) % 7 + n * 13),
                    endpoints: (0..n % 4 * endpoints)
                        .map(|n| Endpoint { address: format!("10.1.0.{}", n % 200), port: 80, ..Endpoint::default() })
                        .collect(), ..EndpointSet::default() })
                .collect();
            for set in &mut next.endpoints {
                if let Some(new) = changed.iter().find(|new| new.name == set.name) {
                    set.clone_from(new);
                }
            }
            let refreshed = splitter.snapshot().with_changed_endpoints(&canonical_endpoint_entries(changed));
            prop_assert_eq!(splitter.split(&refreshed).unwrap(), split(&next).unwrap());

            let longer = usize::from(edit % 5) * endpoints * 100;
            let hosts = next.route_tables[0].virtual_hosts.iter_mut();
            let route_tables: RouteTableDelta = hosts
                .step_by(endpoints + 1)
                .map(|host| {
                    let before = host.clone();
                    host.routes[0].method = format!("N{edit}{}", "x".repeat(longer));
                    change("http/80", before, host.clone())
                })
                .collect();
            let (backends, endpoints) = come_and_go(&mut next, usize::from(edit % 7), usize::from(edit % 11));
            let delta = GatewayDelta { route_tables, backends, endpoints };
            let changed = splitter.snapshot().with_changes(&delta).unwrap();
            prop_assert_eq!(&changed, &encoded(&next));
            prop_assert_eq!(splitter.split(&changed).unwrap(), split(&next).unwrap());
        }
    }

    #[test]
    fn altered_shard_never_joins(position in any::<prop::sample::Index>(), flip in 1_u8..) {
        let sharded = split(&snapshot(50)).unwrap();
        let mut shards = stored(&sharded);
        let name = &sharded.manifest.config[1].name;
        let bytes = shards.get_mut(name).unwrap();
        let at = position.index(bytes.len());
        bytes[at] ^= flip;
        let refused = matches!(
            join(&sharded.manifest, &shards),
            Err(ShardError::Digest { .. })
        );
        prop_assert!(refused);
    }

    #[test]
    fn endpoint_shards_of_any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let sharded = split(&snapshot(3)).unwrap();
        let mut shards = stored(&sharded);
        shards.insert(sharded.manifest.endpoints[0].name.clone(), bytes);
        let _ = join(&sharded.manifest, &shards);
    }
}

fn come_and_go(
    snapshot: &mut Snapshot,
    added: usize,
    removed: usize,
) -> (BackendDelta, EndpointDelta) {
    let removed = removed.min(snapshot.backends.len());
    let gone: Vec<String> = snapshot
        .backends
        .drain(..removed)
        .map(|it| it.name)
        .collect();
    snapshot.endpoints.retain(|set| !gone.contains(&set.name));
    let name = |index: usize| format!("Service/default/new{index}/80");
    let backends = BackendDelta {
        added: (0..added)
            .map(|index| Backend {
                name: name(index),
                endpoints: name(index),
                ..Backend::default()
            })
            .collect(),
        removed: gone.clone(),
    };
    let endpoint = |last| Endpoint {
        address: format!("10.2.0.{last}"),
        port: 80,
        ..Endpoint::default()
    };
    let endpoints = EndpointDelta {
        added: (0..added)
            .map(|index| EndpointSet {
                name: name(index),
                endpoints: vec![endpoint(1), endpoint(2)],
                ..EndpointSet::default()
            })
            .collect(),
        removed: gone,
    };
    snapshot.backends.extend(backends.added.clone());
    snapshot.endpoints.extend(endpoints.added.clone());
    canonicalize(snapshot);
    (backends, endpoints)
}

fn change(table: &str, before: VirtualHost, after: VirtualHost) -> ChangedHost {
    ChangedHost {
        table: table.to_owned(),
        before,
        after,
    }
}

#[test]
fn conflicting_changes_do_not_apply() {
    let original = snapshot(40);
    let (there, none) = (&original.backends[0], "Service/default/none/80".to_owned());
    let set = &original.endpoints[0];
    let backends = |added, removed| GatewayDelta {
        backends: BackendDelta { added, removed },
        ..GatewayDelta::default()
    };
    let endpoints = |added, removed| GatewayDelta {
        endpoints: EndpointDelta { added, removed },
        ..GatewayDelta::default()
    };
    let host = &original.route_tables[0].virtual_hosts[0];
    let other = VirtualHost {
        domain: "none.example.com".to_owned(),
        ..host.clone()
    };
    let hosts = |table, host: &VirtualHost| GatewayDelta {
        route_tables: [change(table, host.clone(), host.clone())]
            .into_iter()
            .collect(),
        ..GatewayDelta::default()
    };
    let deltas = [
        backends(vec![there.clone()], Vec::new()),
        backends(Vec::new(), vec![none.clone()]),
        endpoints(vec![set.clone()], Vec::new()),
        endpoints(Vec::new(), vec![none]),
        hosts("http/80", &other),
        hosts("http/81", host),
    ];
    for delta in deltas {
        assert_eq!(encoded(&original).with_changes(&delta), None, "{delta:?}");
    }
}

#[test]
fn one_edit_rewrites_one_shard_of_many() {
    let before = split(&snapshot(5000)).unwrap();
    let mut edited = snapshot(5000);
    edited.route_tables[0].virtual_hosts[7].routes[0].method = "GET".to_owned();
    let after = split(&edited).unwrap();
    let names = |sharded: &sesame_proto::shard::Sharded| {
        sharded
            .manifest
            .config
            .iter()
            .map(|shard| shard.name.clone())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert!(
        before.manifest.config.len() > 2,
        "the snapshot has several shards"
    );
    assert_eq!(names(&after).difference(&names(&before)).count(), 1);
}

#[test]
fn one_endpoint_of_thousands_rewrites_one_small_shard() {
    let mut splitter = Splitter::default();
    let before = splitter.split(&encoded(&snapshot(5000))).unwrap();
    let moved = EndpointSet {
        name: "Service/default/s7/80".to_owned(),
        endpoints: vec![Endpoint {
            address: "10.9.9.9".to_owned(),
            port: 8080,
            ..Endpoint::default()
        }],
        ..EndpointSet::default()
    };
    let changed = splitter.snapshot();
    let changed = changed.with_changed_endpoints(&canonical_endpoint_entries(vec![moved]));
    let after = splitter.split(&changed).unwrap();
    assert_eq!(before.manifest, after.manifest);
    let pairs = after.shards.iter().zip(&before.shards);
    let sizes = pairs.filter(|(after, before)| after != before);
    let sizes: Vec<usize> = sizes.map(|(after, _)| after.bytes.len()).collect();
    let all: usize = after.shards.iter().map(|shard| shard.bytes.len()).sum();
    assert!(
        matches!(sizes[..], [size] if size * 10 < all),
        "{sizes:?} of {all}"
    );
}

#[test]
fn endpoint_change_keeps_revision() {
    let before = snapshot(10);
    let mut after = before.clone();
    after.endpoints[3].endpoints[0].port = 9090;
    assert_eq!(revision(&before), revision(&after));
    assert_eq!(
        split(&before).unwrap().manifest.config,
        split(&after).unwrap().manifest.config
    );
}

#[allow(clippy::disallowed_methods, reason = "the test reads a directory")]
#[test]
fn directory_returns_last_written_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (snapshot(40), snapshot(41));
    sesame_files::directory::write(dir.path(), &first).unwrap();
    sesame_files::directory::write(dir.path(), &second).unwrap();
    let (manifest, read) = sesame_files::directory::read(dir.path()).unwrap();
    assert_eq!(read, second);
    assert_eq!(manifest.revision, revision(&second));
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(
        files,
        1 + manifest.config.len() + manifest.endpoints.len(),
        "unreferenced shards are removed"
    );
}

#[test]
fn missing_shard_is_named() {
    let sharded = split(&snapshot(5)).unwrap();
    let mut shards = stored(&sharded);
    let name = sharded.manifest.config[0].name.clone();
    shards.remove(&name);
    assert_eq!(
        join(&sharded.manifest, &shards),
        Err(ShardError::Missing { name })
    );
}
