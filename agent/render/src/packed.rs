//! A resolved Gateway whose snapshot is kept as bytes.
//!
//! As values a snapshot takes seven times the memory, and between two changes nobody looks into it. Its parts are
//! apart, so that what a change left alone is seen at a glance. It never prints a key.

pub(crate) mod encoded;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::{Message as _, encoding};
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::expiry::Expiry;
use sesame_gateway_api::resolve::ResolvedGateway;
use sesame_proto::digest;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{Edge, EndpointSet, Snapshot, Transport, VirtualHost};

/// A Gateway, its encoded snapshot and its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    gateway: NamespacedName,
    /// Encoded snapshots that hold a part each; behind one another they are the whole.
    route_tables: Bytes,
    endpoints: Bytes,
    /// The rest: the fields ahead of the route tables, and those behind them.
    ahead: Bytes,
    behind: Bytes,
    addresses: Vec<String>,
    ports: BTreeSet<(Transport, u32)>,
    serials: BTreeMap<String, String>,
    first_expiry: Option<i64>,
    expiries: Vec<Expiry>,
    counts: Counts,
    edge: Edge,
    keys: Vec<KeyPair>,
}

impl Packed {
    /// Packs a Gateway.
    pub fn new(resolved: &ResolvedGateway) -> Self {
        let ResolvedGateway {
            gateway,
            snapshot,
            keys,
        } = resolved;
        let Parts {
            route_tables,
            endpoints,
            ahead,
            behind,
        } = Parts::of(snapshot);
        Self {
            gateway: gateway.clone(),
            route_tables: route_tables.into(),
            endpoints: endpoints.into(),
            ahead: ahead.into(),
            behind: behind.into(),
            addresses: snapshot.addresses.clone(),
            ports: snapshot
                .ports
                .iter()
                .map(|port| (port.transport(), port.port))
                .collect(),
            serials: serials(snapshot),
            first_expiry: snapshot
                .keys
                .iter()
                .map(|key| key.not_after)
                .filter(|end| *end > 0)
                .min(),
            expiries: keys.iter().filter_map(Expiry::of).collect(),
            counts: Counts {
                listeners: snapshot.ports.iter().map(|port| port.listeners.len()).sum(),
                virtual_hosts: snapshot
                    .route_tables
                    .iter()
                    .map(|table| table.virtual_hosts.len())
                    .sum(),
                backends: snapshot.backends.len(),
            },
            edge: snapshot.edge.unwrap_or_default(),
            keys: keys.clone(),
        }
    }

    /// The same with other endpoints.
    #[must_use]
    pub fn with_endpoints(&self, sets: &[EndpointSet]) -> Self {
        let mut endpoints = Vec::new();
        encoding::message::encode_repeated(ENDPOINTS, sets, &mut endpoints);
        Self {
            endpoints: endpoints.into(),
            ..self.clone()
        }
    }

    /// The same with these virtual hosts, each in the place of the one of its domain in the table of that name; none if
    /// there is no such place, or two.
    pub fn with_hosts(&self, hosts: &[(String, VirtualHost)]) -> Option<Self> {
        let route_tables = encoded::replace(&self.route_tables, hosts)?;
        Some(Self {
            route_tables: route_tables.into(),
            ..self.clone()
        })
    }

    /// Which parts are those of `before`.
    pub fn same_as(&self, before: &Self) -> Same {
        Same {
            route_tables: self.route_tables == before.route_tables,
            endpoints: self.endpoints == before.endpoints,
            rest: self.ahead == before.ahead
                && self.behind == before.behind
                && self.keys == before.keys,
        }
    }

    /// How its clients are treated.
    pub fn edge(&self) -> Edge {
        self.edge
    }

    /// The Gateway.
    pub fn gateway(&self) -> &NamespacedName {
        &self.gateway
    }

    /// The snapshot as values.
    pub fn snapshot(&self) -> Snapshot {
        decoded(&self.bytes())
    }

    /// The snapshot as values, but for its route tables, which are most of it.
    pub fn without_route_tables(&self) -> Snapshot {
        decoded(&[&self.ahead[..], &self.behind, &self.endpoints].concat())
    }

    /// An encoded snapshot that holds the route tables and nothing else.
    pub fn route_tables(&self) -> &[u8] {
        &self.route_tables
    }

    /// Hex SHA-256 of everything but the endpoints and the keys themselves, whose digests are in it: the revision, if the
    /// snapshot was canonical when it was packed. Nothing is decoded for it.
    pub fn config_digest(&self) -> String {
        digest::sha256_of_all(&[&self.ahead, &self.route_tables, &self.behind])
    }

    /// The same, with the endpoints.
    pub fn digest(&self) -> String {
        digest::sha256_of_all(&[
            &self.ahead,
            &self.behind,
            &self.route_tables,
            &self.endpoints,
        ])
    }

    /// Its endpoint sets.
    pub fn endpoints(&self) -> Vec<EndpointSet> {
        decoded(&self.endpoints).endpoints
    }

    /// The snapshot's encoding.
    pub fn bytes(&self) -> Vec<u8> {
        [
            &self.ahead[..],
            &self.behind,
            &self.route_tables,
            &self.endpoints,
        ]
        .concat()
    }

    /// Addresses that were asked for.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// What it listens on, as seen from outside.
    pub fn ports(&self) -> &BTreeSet<(Transport, u32)> {
        &self.ports
    }

    /// By key name: the serial number that a handshake must show.
    pub fn serials(&self) -> &BTreeMap<String, String> {
        &self.serials
    }

    /// When the first certificate expires, in seconds since 1970.
    pub fn first_expiry(&self) -> Option<i64> {
        self.first_expiry
    }

    /// When each of the certificates expires.
    pub fn expiries(&self) -> &[Expiry] {
        &self.expiries
    }

    /// How much it serves.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The key pairs.
    pub fn keys(&self) -> &[KeyPair] {
        &self.keys
    }
}

/// Parts as values.
fn decoded(bytes: &[u8]) -> Snapshot {
    #[expect(clippy::expect_used, reason = "proven")]
    Snapshot::decode(bytes).expect("`Packed` encoded these bytes from a Snapshot")
}

/// How much a snapshot serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Listeners of all ports.
    pub listeners: usize,
    /// Virtual hosts of all route tables.
    pub virtual_hosts: usize,
    /// Backends.
    pub backends: usize,
}

/// Which parts of two snapshots are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Same {
    /// The route tables.
    pub route_tables: bool,
    /// The endpoint sets.
    pub endpoints: bool,
    /// Everything else: listeners, backends, trust bundles, key pairs.
    pub rest: bool,
}

/// The number of `endpoints` in `snapshot.proto`.
const ENDPOINTS: u32 = 6;

impl Same {
    /// Whether it is route tables alone that differ.
    pub fn only_route_tables_differ(self) -> bool {
        matches!(
            self,
            Self {
                route_tables: false,
                endpoints: true,
                rest: true
            }
        )
    }

    /// Whether it is the endpoints alone that differ.
    pub fn only_endpoints_differ(self) -> bool {
        matches!(
            self,
            Self {
                route_tables: true,
                endpoints: false,
                rest: true
            }
        )
    }
}

/// A snapshot's parts, encoded.
struct Parts {
    route_tables: Vec<u8>,
    endpoints: Vec<u8>,
    ahead: Vec<u8>,
    behind: Vec<u8>,
}

impl Parts {
    fn of(snapshot: &Snapshot) -> Self {
        let Snapshot {
            gateway,
            addresses,
            ports,
            route_tables,
            backends,
            endpoints,
            keys,
            trust_bundles,
            edge,
        } = snapshot;
        let mut parts = Self {
            route_tables: Vec::new(),
            endpoints: Vec::new(),
            ahead: Vec::new(),
            behind: Vec::new(),
        };
        // The numbers of `snapshot.proto`: fields are encoded one by one to copy nothing.
        if !gateway.is_empty() {
            encoding::string::encode(1, gateway, &mut parts.ahead);
        }
        encoding::string::encode_repeated(2, addresses, &mut parts.ahead);
        encoding::message::encode_repeated(3, ports, &mut parts.ahead);
        encoding::message::encode_repeated(encoded::TABLES, route_tables, &mut parts.route_tables);
        encoding::message::encode_repeated(5, backends, &mut parts.behind);
        encoding::message::encode_repeated(ENDPOINTS, endpoints, &mut parts.endpoints);
        encoding::message::encode_repeated(7, keys, &mut parts.behind);
        encoding::message::encode_repeated(8, trust_bundles, &mut parts.behind);
        if let Some(edge) = edge {
            encoding::message::encode(9, edge, &mut parts.behind);
        }
        parts
    }
}

/// The serial numbers that handshakes must show, by key name.
pub fn serials(snapshot: &Snapshot) -> BTreeMap<String, String> {
    snapshot
        .keys
        .iter()
        .map(|key| (key.name.clone(), key.serial.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sesame_proto::schema::{
        Backend, EndpointSet, KeyRef, Port, Route, RouteTable, TrustBundle, VirtualHost,
    };

    use super::*;

    #[test]
    fn what_is_packed_comes_back_and_says_which_part_differs() {
        let name = || "name".to_owned();
        let mut resolved = ResolvedGateway {
            gateway: NamespacedName::new("ns", "gw"),
            snapshot: Snapshot {
                gateway: "Gateway/ns/gw".to_owned(),
                addresses: vec!["192.0.2.1".to_owned()],
                ports: vec![Port::default(), Port::default()],
                route_tables: vec![RouteTable {
                    name: name(),
                    ..RouteTable::default()
                }],
                backends: vec![Backend {
                    name: name(),
                    ..Backend::default()
                }],
                endpoints: vec![EndpointSet {
                    name: name(),
                    ..EndpointSet::default()
                }],
                keys: vec![KeyRef {
                    name: name(),
                    serial: "01".to_owned(),
                    ..KeyRef::default()
                }],
                trust_bundles: vec![TrustBundle {
                    name: name(),
                    pem: "pem".to_owned(),
                }],
                edge: Some(Edge {
                    keep_repeated_slashes: true,
                    ..Edge::default()
                }),
            },
            keys: Vec::new(),
        };
        let packed = Packed::new(&resolved);
        assert_eq!(packed.snapshot(), resolved.snapshot);
        assert_eq!(packed.serials()["name"], "01");
        let moved = packed.with_endpoints(&[EndpointSet::default(), EndpointSet::default()]);
        assert_eq!(moved.endpoints().len(), 2);
        assert_eq!(moved.config_digest(), packed.config_digest());
        let (snapshot, same) = (moved.without_route_tables(), moved.same_as(&packed));
        assert_eq!((snapshot.route_tables.len(), snapshot.ports.len()), (0, 2));
        assert_eq!(
            (same.route_tables, same.endpoints, same.rest),
            (true, false, true)
        );
        resolved.snapshot.route_tables.clear();
        let other = Packed::new(&resolved);
        assert_ne!(other.config_digest(), packed.config_digest());
        let same = other.same_as(&packed);
        assert_eq!(
            (same.route_tables, same.endpoints, same.rest),
            (false, true, true)
        );
    }

    #[test]
    fn other_virtual_hosts_are_encoded_as_if_all_were_encoded_again() {
        let host = |domain: &str, routes: usize| VirtualHost {
            domain: domain.to_owned(),
            routes: vec![Route::default(); routes],
        };
        let table = |name: &str, hosts: &[VirtualHost]| RouteTable {
            name: name.to_owned(),
            virtual_hosts: hosts.to_vec(),
        };
        let mut resolved = ResolvedGateway {
            gateway: NamespacedName::new("ns", "gw"),
            snapshot: Snapshot {
                route_tables: vec![
                    table("http/80", &[host("a", 1), host("b", 100)]),
                    table("http/81", &[]),
                    table("http/82", &[host("a", 0), host("*", 1)]),
                ],
                endpoints: vec![EndpointSet::default()],
                ..Snapshot::default()
            },
            keys: Vec::new(),
        };
        let before = Packed::new(&resolved);
        let others = [
            ("http/80".to_owned(), host("b", 1)),
            ("http/82".to_owned(), host("a", 3)),
        ];
        resolved.snapshot.route_tables[0].virtual_hosts[1] = others[0].1.clone();
        resolved.snapshot.route_tables[2].virtual_hosts[0] = others[1].1.clone();
        assert_eq!(before.with_hosts(&others), Some(Packed::new(&resolved)));
        for (table, domain) in [("http/81", "a"), ("http/80", "*"), ("none", "a")] {
            let other = (table.to_owned(), host(domain, 1));
            assert_eq!(before.with_hosts(&[other]), None, "{table} {domain}");
        }
        let twice = [others[0].clone(), others[0].clone()];
        assert_eq!(before.with_hosts(&twice), None);
        resolved.snapshot.route_tables[0].virtual_hosts[0] = host("b", 2);
        let two = Packed::new(&resolved);
        assert_eq!(two.with_hosts(&others[..1]), None);
    }

    proptest! {
        #[test]
        fn the_revision_is_told_from_the_bytes(
            lists in proptest::collection::vec(
                proptest::collection::vec("[a-c*.]{0,3}", 0..4), 8
            )
        ) {
            let named = |list: usize| lists[list].iter().cloned();
            let mut snapshot = Snapshot {
                gateway: named(0).next().unwrap_or_default(),
                addresses: named(1).collect(),
                ports: named(2)
                    .map(|name| Port {
                        port: u32::try_from(name.len()).expect("short"),
                        ..Port::default()
                    })
                    .collect(),
                route_tables: named(3)
                    .map(|name| RouteTable {
                        name,
                        virtual_hosts: named(4)
                            .map(|domain| VirtualHost { domain, ..VirtualHost::default() })
                            .collect(),
                    })
                    .collect(),
                backends: named(4).map(|name| Backend { name, ..Backend::default() }).collect(),
                endpoints: named(5)
                    .map(|name| EndpointSet { name, ..EndpointSet::default() })
                    .collect(),
                keys: named(6).map(|name| KeyRef { name, ..KeyRef::default() }).collect(),
                trust_bundles: named(7)
                    .map(|name| TrustBundle { name, ..TrustBundle::default() })
                    .collect(),
                edge: Some(Edge { max_request_headers: Some(7), ..Edge::default() }),
            };
            digest::canonicalize(&mut snapshot);
            let revision = digest::revision(&snapshot);
            let packed = Packed::new(&ResolvedGateway {
                gateway: NamespacedName::new("ns", "gw"),
                snapshot,
                keys: Vec::new(),
            });
            prop_assert_eq!(packed.config_digest(), revision);
        }
    }
}
