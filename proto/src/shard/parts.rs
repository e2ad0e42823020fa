//! Splits a shard's contents if they are too large.

use std::collections::BTreeSet;

use prost::Message;

use crate::provenance::Provenance;
use crate::schema::{RouteTable, Snapshot, VirtualHost};

const MAX_NAMESPACES: usize = 4;

/// Splits a piece into two parts of similar size. Returns `None` if it cannot be split.
pub(super) fn halves(mut piece: Snapshot) -> Option<(Snapshot, Snapshot)> {
    let mut rest = Snapshot::default();
    let sizes = [
        piece.trust_bundles.iter().map(Message::encoded_len).sum(),
        piece.keys.iter().map(Message::encoded_len).sum(),
        hosts(&piece).map(Message::encoded_len).sum(),
        piece
            .backends
            .iter()
            .map(Message::encoded_len)
            .sum::<usize>(),
        piece.rate_limits.iter().map(Message::encoded_len).sum(),
        piece.shared_filters.iter().map(Message::encoded_len).sum(),
    ];
    let counts = [
        piece.trust_bundles.len(),
        piece.keys.len(),
        hosts(&piece).map(|it| it.routes.len().max(1)).sum(),
        piece.backends.len(),
        piece.rate_limits.len(),
        piece.shared_filters.len(),
    ];
    // Only the piece without a bucket contains the Gateway's name.
    let has_head = !piece.gateway.is_empty();
    let several = sizes.iter().filter(|size| **size > 0).count() + usize::from(has_head) > 1;
    // If the largest list has only one element, separate it from the rest.
    let splittable = sizes.iter().zip(counts).enumerate();
    let splittable = splittable.filter(|(_, (size, count))| **size > 0 && (*count > 1 || several));
    let (largest, (_, count)) = splittable.max_by_key(|(_, (size, _))| **size)?;
    let middle = count / 2;
    match largest {
        0 => rest.trust_bundles = piece.trust_bundles.split_off(middle),
        1 => rest.keys = piece.keys.split_off(middle),
        2 => rest.route_tables = split_off_routes(&mut piece.route_tables, middle),
        3 => rest.backends = piece.backends.split_off(middle),
        4 => rest.rate_limits = piece.rate_limits.split_off(middle),
        _ => rest.shared_filters = piece.shared_filters.split_off(middle),
    }
    Some((piece, rest))
}

/// Keeps the first `left` routes. If a virtual host is split, both results contain it.
fn split_off_routes(tables: &mut Vec<RouteTable>, mut left: usize) -> Vec<RouteTable> {
    let mut rest: Vec<RouteTable> = Vec::new();
    for table in tables.iter_mut() {
        let mut behind = Vec::new();
        for mut host in std::mem::take(&mut table.virtual_hosts) {
            let count = host.routes.len().max(1);
            if left >= count {
                left -= count;
                table.virtual_hosts.push(host);
                continue;
            }
            if left > 0 {
                let routes = host.routes.split_off(left);
                left = 0;
                behind.push(VirtualHost {
                    domain: host.domain.clone(),
                    routes,
                    // In encoded form, these fields follow the routes, so they belong to the second
                    // part.
                    external_auth: std::mem::take(&mut host.external_auth),
                    filters: host.filters.take(),
                });
                table.virtual_hosts.push(host);
            } else {
                behind.push(host);
            }
        }
        if !behind.is_empty() {
            rest.push(RouteTable {
                name: table.name.clone(),
                virtual_hosts: behind,
            });
        }
    }
    tables.retain(|table| !table.virtual_hosts.is_empty());
    rest
}

pub(super) fn name(piece: &Snapshot) -> String {
    if let Some(host) = hosts(piece).next() {
        let routes = host.routes.first().map(|route| route.name.as_str());
        let route = routes.unwrap_or("its listener");
        return format!("hostname `{}`: {route}", host.domain);
    }
    let bundle = piece.trust_bundles.first();
    let bundle = bundle.map(|it| format!("trust bundle {}", it.name));
    let backend = || Some(format!("backend {}", piece.backends.first()?.name));
    bundle
        .or_else(backend)
        .unwrap_or_else(|| "the Gateway's listeners and settings".to_owned())
}

pub(super) fn largest_host(snapshot: &Snapshot) -> String {
    let Some(host) = hosts(snapshot).max_by_key(|it| it.encoded_len()) else {
        return String::new();
    };
    let namespaces = host.routes.iter().filter_map(|route| {
        let provenance = Provenance::parse(&route.name).ok()?;
        Some(provenance.namespace)
    });
    let namespaces: BTreeSet<&str> = namespaces.collect();
    let more = namespaces.len().saturating_sub(MAX_NAMESPACES);
    let shown = namespaces.into_iter().take(MAX_NAMESPACES);
    let mut shown = shown.collect::<Vec<_>>().join(", ");
    if more > 0 {
        shown.push_str(" and ");
        shown.push_str(&more.to_string());
        shown.push_str(" more");
    }
    format!(
        "; the largest hostname is `{}` with {} bytes encoded, in namespaces {shown}: use fewer or smaller routes, or split \
         them across several Gateways",
        host.domain,
        host.encoded_len()
    )
}

fn hosts(snapshot: &Snapshot) -> impl Iterator<Item = &VirtualHost> {
    let tables = snapshot.route_tables.iter();
    tables.flat_map(|table| &table.virtual_hosts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::digest::{canonicalize, sha256};
    use crate::encoded::EncodedSnapshot;
    use crate::schema::{
        Backend, Endpoint, EndpointSet, ExternalAuth, Header, HeaderModifier, Route, RouteTable,
        Snapshot, TrustBundle, VirtualHost,
    };
    use crate::shard::{MAX_STORED_BYTES, ShardError, Sharded, Splitter, join};

    /// Returns text that cannot be compressed to less than half its length.
    fn noise(seed: &str, length: usize) -> String {
        let mut text = String::with_capacity(length + 64);
        for part in 0.. {
            if text.len() >= length {
                break;
            }
            text += &sha256(format!("{seed}/{part}").as_bytes());
        }
        text
    }

    fn route(namespace: &str, number: usize, size: usize) -> Route {
        let name = format!("HTTPRoute/{namespace}/r{number}/rules/0/matches/0");
        let header = Header {
            name: "x-a".to_owned(),
            value: noise(&name, size),
            parts: Vec::new(),
        };
        Route {
            name,
            request_headers: Some(Box::new(HeaderModifier {
                add: vec![header],
                ..HeaderModifier::default()
            })),
            ..Route::default()
        }
    }

    fn snapshot(address: &str, sizes: &[usize]) -> Snapshot {
        let endpoints = |name: &str, address: &str| EndpointSet {
            name: name.to_owned(),
            endpoints: vec![Endpoint {
                address: address.to_owned(),
                port: 80,
                ..Endpoint::default()
            }],
            ..EndpointSet::default()
        };
        let routes = sizes.iter().enumerate();
        let hosts = [
            VirtualHost {
                domain: "a.test".to_owned(),
                routes: vec![route("team-a", 0, 10)],
                external_auth: vec![ExternalAuth::default()],
                filters: None,
            },
            VirtualHost {
                domain: "b.test".to_owned(),
                routes: routes.map(|(i, size)| route("team-b", i, *size)).collect(),
                external_auth: vec![ExternalAuth::default()],
                filters: None,
            },
        ];
        let tables = ["http/80", "http/81"].map(|name| RouteTable {
            name: name.to_owned(),
            virtual_hosts: hosts.to_vec(),
        });
        let mut snapshot = Snapshot {
            gateway: "Gateway/infra/edge".to_owned(),
            route_tables: tables.to_vec(),
            backends: vec![Backend::default()],
            endpoints: vec![endpoints("Service/team-a/a/80", address)],
            ..Snapshot::default()
        };
        canonicalize(&mut snapshot);
        snapshot
    }

    fn encoded(snapshot: &Snapshot) -> EncodedSnapshot {
        EncodedSnapshot::new(snapshot, Vec::new())
    }

    fn joined(sharded: &Sharded) -> Snapshot {
        let shards = sharded.shards.iter();
        let shards: BTreeMap<String, _> = shards
            .map(|shard| (shard.name.clone(), shard.bytes.clone()))
            .collect();
        assert!(shards.values().all(|bytes| bytes.len() <= MAX_STORED_BYTES));
        join(&sharded.manifest, &shards).expect("the snapshot")
    }

    #[test]
    fn oversized_hostname_is_stored_in_parts() {
        let mut large = snapshot("10.0.0.1", &[256 * 1024; 16]);
        large.trust_bundles = (0..6)
            .map(|i| TrustBundle {
                name: format!("ConfigMap/ns/{i}"),
                pem: noise(&format!("pem{i}"), 700 * 1024),
                ..TrustBundle::default()
            })
            .collect();
        let mut splitter = Splitter::default();
        let sharded = splitter.split(&encoded(&large)).expect("the snapshot fits");
        assert!(sharded.manifest.config.len() > 6);
        assert_eq!(joined(&sharded), large);
        // A new splitter must produce the same bytes.
        let again = Splitter::default().split(&encoded(&large));
        assert_eq!(again, Ok(sharded));
    }

    #[test]
    fn endpoints_change_while_the_configuration_does_not_fit() {
        let mut splitter = Splitter::default();
        assert!(splitter.last().is_none());
        let first = splitter
            .split(&encoded(&snapshot("10.0.0.1", &[10])))
            .unwrap();
        let large = snapshot("10.0.0.2", &[10, 2 * 1024 * 1024]);
        let error = splitter.split(&encoded(&large)).unwrap_err();
        let ShardError::TooLarge { what, size, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(
            what,
            "hostname `b.test`: HTTPRoute/team-b/r1/rules/0/matches/0"
        );
        assert!(*size > MAX_STORED_BYTES as u64);
        assert!(error.to_string().contains("bytes compressed"), "{error}");
        let last = splitter.last().expect("the first configuration");
        assert_eq!(last.manifest, first.manifest);
        assert_eq!(joined(&last), snapshot("10.0.0.2", &[10]));
        let next = splitter
            .split(&encoded(&snapshot("10.0.0.3", &[20])))
            .unwrap();
        assert_eq!(joined(&next), snapshot("10.0.0.3", &[20]));
    }

    #[test]
    fn splitter_keeps_last_result_when_endpoints_overflow() {
        let mut splitter = Splitter::default();
        let first = splitter
            .split(&encoded(&snapshot("10.0.0.1", &[10])))
            .unwrap();
        let address = noise("address", 4 * MAX_STORED_BYTES);
        // Once with the same configuration, once with another.
        for size in [10, 20] {
            let large = snapshot(&address, &[size]);
            let error = splitter.split(&encoded(&large)).unwrap_err();
            assert!(matches!(error, ShardError::TooLarge { .. }), "{error}");
            assert_eq!(splitter.last().as_ref(), Some(&first));
        }
        let next = snapshot("10.0.0.2", &[20]);
        let sharded = splitter.split(&encoded(&next)).unwrap();
        assert_eq!(joined(&sharded), next);
        assert_eq!(Splitter::default().split(&encoded(&next)), Ok(sharded));
    }

    #[test]
    fn unreadably_large_configuration_is_not_split() {
        // Once decoded, each route takes a hundred times as much memory as its encoding.
        let mut snapshot = snapshot("10.0.0.1", &[]);
        for host in 0..40 {
            snapshot.route_tables[0].virtual_hosts.push(VirtualHost {
                domain: format!("h{host}.test"),
                routes: vec![Route::default(); 30_000],
                ..VirtualHost::default()
            });
        }
        let error = Splitter::default().split(&encoded(&snapshot)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("of memory once decoded"), "{text}");
        assert!(text.contains("536870912"), "{text}");
        assert!(text.contains("the largest hostname is `h"), "{text}");
    }
}
