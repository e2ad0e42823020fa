//! Keeps snapshots in encoded form, which takes much less memory.
//!
//! Virtual hosts, backends and endpoint sets are encoded one by one. Versions of a snapshot share
//! unchanged ones, so a comparison shows which parts a change affects. Never print a private key.

mod changes;
mod entry;
mod held;
mod pieces;
mod route_tables;
mod staged;
mod substitutes;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use prost::Message as _;
use sha2::{Digest as _, Sha256};

pub use self::changes::{
    BackendChanges, UnchangedParts, canonical_endpoint_entries, endpoint_entries,
};
pub use self::entry::Entry;
use self::entry::{entries, list_len, write_list};
pub use self::route_tables::{EncodedHost, EncodedTable};
pub use self::substitutes::Substitutes;
use crate::keys::{KeyPair, hex};
use crate::schema::{EndpointSet, Port, Snapshot, Transport};
use crate::wire::first;
use crate::wire::numbers::snapshot::{BACKENDS, ENDPOINTS, ROUTE_TABLES};

/// An encoded snapshot with its key pairs and frequently needed values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodedSnapshot {
    rest: Arc<Rest>,
    route_tables: Arc<[EncodedTable]>,
    backends: Arc<[Entry]>,
    endpoints: Arc<[Entry]>,
    lacks_ticket_keys: bool,
    /// Shared by all versions with the same key pairs.
    keys: Arc<[KeyPair]>,
}

/// Everything except route tables, backends and endpoints, with values derived from it.
#[derive(Debug, Default, PartialEq)]
struct Rest {
    snapshot: Snapshot,
    ports: BTreeMap<(Transport, u32), u32>,
    serials: BTreeMap<String, String>,
    first_expiry: Option<i64>,
}

impl EncodedSnapshot {
    /// Encodes a snapshot. `keys` must be in the order of `snapshot.keys`.
    pub fn new(snapshot: &Snapshot, keys: Vec<KeyPair>) -> Self {
        let Snapshot {
            gateway,
            addresses,
            ports,
            route_tables,
            backends,
            endpoints,
            keys: key_refs,
            trust_bundles,
            edge,
            rotation,
            tracing,
            log_output,
            measured_routes,
            rate_limits,
            shared_filters,
            filters,
            rollout,
        } = snapshot;
        let rest = Rest::new(Snapshot {
            gateway: gateway.clone(),
            addresses: addresses.clone(),
            ports: ports.clone(),
            route_tables: Vec::new(),
            backends: Vec::new(),
            endpoints: Vec::new(),
            keys: key_refs.clone(),
            trust_bundles: trust_bundles.clone(),
            edge: *edge,
            rotation: *rotation,
            tracing: tracing.clone(),
            log_output: log_output.clone(),
            measured_routes: measured_routes.clone(),
            rate_limits: rate_limits.clone(),
            shared_filters: shared_filters.clone(),
            filters: filters.clone(),
            rollout: rollout.clone(),
        });
        Self {
            rest: Arc::new(rest),
            route_tables: route_tables.iter().map(EncodedTable::new).collect(),
            backends: entries(backends).into(),
            endpoints: entries(endpoints).into(),
            lacks_ticket_keys: lacks_ticket_keys(ports, &keys),
            keys: keys.into(),
        }
    }

    /// Replaces the key pairs. `keys` must be in the order of the snapshot's references.
    #[must_use]
    pub fn with_keys(self, keys: Vec<KeyPair>) -> Self {
        Self {
            lacks_ticket_keys: lacks_ticket_keys(&self.rest().ports, &keys),
            keys: keys.into(),
            ..self
        }
    }

    /// Takes over the key pairs of a version. Returns `None` unless it has the same listeners and
    /// references to keys.
    pub fn with_keys_of(&self, before: &Self) -> Option<Self> {
        (self.rest == before.rest).then(|| Self {
            rest: Arc::clone(&before.rest),
            lacks_ticket_keys: before.lacks_ticket_keys,
            keys: Arc::clone(&before.keys),
            ..self.clone()
        })
    }

    /// Returns the snapshot without route tables, backends and endpoints.
    pub fn rest(&self) -> &Snapshot {
        &self.rest.snapshot
    }

    /// Returns `Gateway/namespace/name`.
    pub fn gateway(&self) -> &str {
        &self.rest().gateway
    }

    /// Decodes the snapshot.
    pub fn snapshot(&self) -> Snapshot {
        let tables = self.route_tables.iter();
        Snapshot {
            route_tables: tables.map(EncodedTable::decoded).collect(),
            ..self.without_route_tables()
        }
    }

    /// Decodes the snapshot without route tables, its largest part.
    pub fn without_route_tables(&self) -> Snapshot {
        Snapshot {
            endpoints: self.endpoints(),
            ..self.without_route_tables_and_endpoints()
        }
    }

    /// Decodes the snapshot without route tables and endpoint sets.
    pub fn without_route_tables_and_endpoints(&self) -> Snapshot {
        Snapshot {
            backends: self.backends.iter().map(Entry::decoded).collect(),
            ..self.rest().clone()
        }
    }

    /// Decodes all endpoint sets.
    pub fn endpoints(&self) -> Vec<EndpointSet> {
        self.endpoints.iter().map(Entry::decoded).collect()
    }

    /// Returns the encoded endpoint sets.
    pub fn endpoint_entries(&self) -> &[Entry] {
        &self.endpoints
    }

    /// Returns the route tables with encoded virtual hosts.
    pub fn route_tables(&self) -> &[EncodedTable] {
        &self.route_tables
    }

    /// Returns the encoded size of the route tables in bytes.
    pub fn size_of_route_tables(&self) -> usize {
        self.route_tables
            .iter()
            .map(EncodedTable::encoded_len)
            .sum()
    }

    /// Returns the encoded size of the backends in bytes.
    pub(crate) fn size_of_backends(&self) -> usize {
        list_len(BACKENDS, &*self.backends)
    }

    /// Returns the number of virtual hosts, backends and endpoint sets.
    pub(crate) fn number_of_entries(&self) -> usize {
        let hosts = self.route_tables.iter().map(|table| table.hosts.len());
        hosts.sum::<usize>() + self.backends.len() + self.endpoints.len()
    }

    /// Returns true if this text occurs in the encoded route tables.
    pub fn is_in_route_tables(&self, text: &str) -> bool {
        let text = memchr::memmem::Finder::new(text);
        self.route_tables.iter().any(|table| {
            let mut hosts = table.hosts.iter();
            text.find(table.name.as_bytes()).is_some()
                || hosts.any(|host| text.find(host.entry.bytes()).is_some())
        })
    }

    /// Returns true if this text occurs outside route tables, backends and endpoint sets.
    pub fn is_in_rest(&self, text: &str) -> bool {
        memchr::memmem::find(&self.rest().encode_to_vec(), text.as_bytes()).is_some()
    }

    /// Returns the SHA-256 in hex, excluding endpoints and private keys. If the snapshot is
    /// canonical, this is its revision.
    pub fn config_digest(&self) -> String {
        let mut hash = Sha256::new();
        self.write_canonical(&mut |bytes| hash.update(bytes));
        hex(&hash.finalize())
    }

    /// Returns the SHA-256 in hex, excluding private keys but including their digests.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        self.write(&mut |bytes| hash.update(bytes));
        hex(&hash.finalize())
    }

    /// Returns the encoded snapshot, whose fields are not in numeric order.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        self.write(&mut |bytes| all.extend_from_slice(bytes));
        all
    }

    /// Returns the encoded snapshot without endpoints, with its fields in numeric order.
    pub(crate) fn canonical_config(&self) -> Vec<u8> {
        let mut all = Vec::new();
        self.write_canonical(&mut |bytes| all.extend_from_slice(bytes));
        all
    }

    fn write_canonical(&self, write: &mut impl FnMut(&[u8])) {
        let rest = self.rest().encode_to_vec();
        let (ahead, behind) = rest.split_at(ahead_of_route_tables(&rest));
        write(ahead);
        self.route_tables
            .iter()
            .for_each(|table| table.write(write));
        write_list(BACKENDS, &*self.backends, write);
        write(behind);
    }

    /// The digests of accepted generations depend on this order.
    fn write(&self, write: &mut impl FnMut(&[u8])) {
        let rest = self.rest().encode_to_vec();
        let (ahead, behind) = rest.split_at(ahead_of_route_tables(&rest));
        write(ahead);
        write_list(BACKENDS, &*self.backends, write);
        write(behind);
        self.route_tables
            .iter()
            .for_each(|table| table.write(write));
        write_list(ENDPOINTS, &*self.endpoints, write);
    }

    /// Returns the port that hosts open for each external port.
    pub fn ports(&self) -> &BTreeMap<(Transport, u32), u32> {
        &self.rest.ports
    }

    /// Returns the certificate serial numbers that clients should see, by key name.
    pub fn serials(&self) -> &BTreeMap<String, String> {
        &self.rest.serials
    }

    /// Returns the earliest certificate expiry as a Unix timestamp.
    pub fn first_expiry(&self) -> Option<i64> {
        self.rest.first_expiry
    }

    /// Returns true if a listener's session ticket keys are missing, in which case hosts use their
    /// own.
    pub fn lacks_ticket_keys(&self) -> bool {
        self.lacks_ticket_keys
    }

    /// Returns the object counts.
    pub fn counts(&self) -> Counts {
        let hosts = self.route_tables.iter().flat_map(|table| &table.hosts);
        let ports = self.rest().ports.iter();
        Counts {
            listeners: ports.map(|port| port.listeners.len()).sum(),
            hostnames: hosts.filter(|host| host.is_served).count(),
            backends: self.backends.len(),
        }
    }

    /// Returns the key pairs, in the snapshot's order.
    pub fn keys(&self) -> &[KeyPair] {
        &self.keys
    }
}

impl Rest {
    fn new(snapshot: Snapshot) -> Self {
        let ports = snapshot.ports.iter();
        let not_after = snapshot.keys.iter().map(|key| key.not_after);
        Self {
            ports: ports
                .map(|port| ((port.transport(), port.port), port.opened()))
                .collect(),
            serials: serials(&snapshot),
            first_expiry: not_after.filter(|end| *end > 0).min(),
            snapshot,
        }
    }
}

/// Returns the length of the fields that precede the route tables.
fn ahead_of_route_tables(rest: &[u8]) -> usize {
    let mut behind = rest;
    while let Some((field, _, next)) = first(behind) {
        if field >= ROUTE_TABLES {
            break;
        }
        behind = next;
    }
    rest.len() - behind.len()
}

/// Number of objects of each kind in a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Listeners on all ports.
    pub listeners: usize,
    /// Hostnames, except those that only reject misdirected requests.
    pub hostnames: usize,
    /// Backends.
    pub backends: usize,
}

fn lacks_ticket_keys(ports: &[Port], keys: &[KeyPair]) -> bool {
    let listeners = ports.iter().flat_map(|port| &port.listeners);
    let names = listeners.filter_map(|listener| Some(&listener.tls.as_ref()?.session_ticket_keys));
    let held: HashSet<&str> = keys.iter().map(|pair| pair.name.as_str()).collect();
    let is_here = |name: &String| name.is_empty() || held.contains(name.as_str());
    !names.into_iter().all(is_here)
}

/// Returns the certificate serial numbers that clients should see, by key name.
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

    use super::*;
    use crate::delta::{ChangedHost, GatewayDelta, RouteTableDelta};
    use crate::schema::route::Action;
    use crate::schema::{
        Backend, DirectResponse, Edge, Endpoint, KeyRef, LogOutput, RateLimit, RequestFilters,
        Rollout, Rotation, Route, RouteTable, SharedFilter, Tracing, TrustBundle, VirtualHost,
    };
    use crate::{digest, refusal};

    fn encode(snapshot: &Snapshot) -> EncodedSnapshot {
        EncodedSnapshot::new(snapshot, Vec::new())
    }

    #[test]
    fn snapshot_reads_back_and_names_changed_parts() {
        let name = || "name".to_owned();
        let mut snapshot = Snapshot {
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
                ..TrustBundle::default()
            }],
            edge: Some(Edge {
                keep_repeated_slashes: true,
                ..Edge::default()
            }),
            rotation: Some(Rotation {
                bundle_overlap_ms: 7,
            }),
            tracing: Some(Tracing {
                backend: name(),
                ..Tracing::default()
            }),
            log_output: Some(LogOutput {
                not_on_host: true,
                ..LogOutput::default()
            }),
            rate_limits: Vec::new(),
            shared_filters: Vec::new(),
            filters: Some(Box::new(RequestFilters {
                max_body_bytes: 7,
                ..RequestFilters::default()
            })),
            measured_routes: vec![name(), "other".to_owned()],
            rollout: Some(Rollout {
                hold_draining: true,
                ..Rollout::default()
            }),
        };
        let encoded = encode(&snapshot);
        assert_eq!(encoded.snapshot(), snapshot);
        assert_eq!(encoded.serials()["name"], "01");
        let moved = encoded.with_endpoints(endpoint_entries(&[
            EndpointSet::default(),
            EndpointSet::default(),
        ]));
        assert_eq!(moved.endpoints().len(), 2);
        assert_eq!(moved.config_digest(), encoded.config_digest());
        let (rest, same) = (
            moved.without_route_tables(),
            moved.unchanged_since(&encoded),
        );
        assert_eq!((rest.route_tables.len(), rest.ports.len()), (0, 2));
        assert_eq!(
            (same.route_tables, same.endpoints, same.rest),
            (true, false, true)
        );
        snapshot.route_tables.clear();
        let other = encode(&snapshot);
        assert_ne!(other.config_digest(), encoded.config_digest());
        let same = other.unchanged_since(&encoded);
        assert_eq!(
            (same.route_tables, same.endpoints, same.rest),
            (false, true, true)
        );
    }

    #[test]
    fn virtual_host_changes_encode_like_full_snapshot() {
        let host = |domain: &str, routes: usize| VirtualHost {
            domain: domain.to_owned(),
            routes: vec![Route::default(); routes],
            ..VirtualHost::default()
        };
        let table = |name: &str, hosts: &[VirtualHost]| RouteTable {
            name: name.to_owned(),
            virtual_hosts: hosts.to_vec(),
        };
        let mut snapshot = Snapshot {
            route_tables: vec![
                table("http/80", &[host("a", 1), host("b", 100)]),
                table("http/81", &[]),
                table("http/82", &[host("a", 0), host("*", 1)]),
            ],
            endpoints: vec![EndpointSet::default()],
            ..Snapshot::default()
        };
        let before = encode(&snapshot);
        let change = |table: &str, before, after| ChangedHost {
            table: table.to_owned(),
            before,
            after,
        };
        let of = |hosts: &[ChangedHost]| GatewayDelta {
            route_tables: hosts.iter().cloned().collect::<RouteTableDelta>(),
            ..GatewayDelta::default()
        };
        let changes = [
            change("http/80", host("b", 100), host("b", 1)),
            change("http/82", host("a", 0), host("a", 3)),
        ];
        snapshot.route_tables[0].virtual_hosts[1] = host("b", 1);
        snapshot.route_tables[2].virtual_hosts[0] = host("a", 3);
        let after = encode(&snapshot);
        assert_eq!(before.with_changes(&of(&changes)), Some(after.clone()));
        assert_eq!(
            after.with_changes(&of(&changes)),
            None,
            "the snapshot is already changed"
        );
        for (table, domain) in [("http/81", "a"), ("http/80", "*"), ("none", "a")] {
            let nowhere = change(table, host(domain, 1), host(domain, 2));
            assert_eq!(
                before.with_changes(&of(&[nowhere])),
                None,
                "{table} {domain}"
            );
        }
        let twice = [changes[0].clone(), changes[0].clone()];
        assert_eq!(before.with_changes(&of(&twice)), None);
    }

    #[test]
    fn hostnames_of_other_listeners_do_not_count() {
        let answering = |status: u32| Route {
            action: Some(Action::DirectResponse(DirectResponse::new(status))),
            ..Route::default()
        };
        let host = |routes: &[Route]| VirtualHost {
            routes: routes.to_vec(),
            ..VirtualHost::default()
        };
        let misdirected = answering(refusal::MISDIRECTED);
        let count = |hosts: &[VirtualHost]| {
            let table = RouteTable {
                virtual_hosts: hosts.to_vec(),
                ..RouteTable::default()
            };
            let snapshot = Snapshot {
                route_tables: vec![table.clone(), table],
                ..Snapshot::default()
            };
            encode(&snapshot).counts().hostnames
        };
        let own = [
            host(&[]),
            host(&[answering(refusal::HTTP)]),
            host(&[misdirected.clone(), misdirected.clone()]),
        ];
        assert_eq!(count(&own), 6);
        let with_others = [&own[..], &[host(&[misdirected])]].concat();
        assert_eq!(count(&with_others), 6);
    }

    #[test]
    fn endpoint_changes_encode_like_full_snapshot() {
        let set = |name: &str, addresses: &[&str]| EndpointSet {
            name: name.to_owned(),
            endpoints: addresses
                .iter()
                .map(|address| Endpoint {
                    address: (*address).to_owned(),
                    port: 80,
                    ..Endpoint::default()
                })
                .collect(),
            ..EndpointSet::default()
        };
        let mut snapshot = Snapshot {
            endpoints: vec![set("a", &["10.0.0.1"]), set("b", &[]), set("c", &["::1"])],
            ..Snapshot::default()
        };
        let before = encode(&snapshot);
        let changed = [
            set("c", &[]),
            set("b", &["10.0.0.2", "10.0.0.3"]),
            set("none", &["::1"]),
        ];
        snapshot.endpoints[1] = changed[1].clone();
        snapshot.endpoints[2] = changed[0].clone();
        assert_eq!(
            before.with_changed_endpoints(&endpoint_entries(&changed)),
            encode(&snapshot)
        );
    }

    proptest! {
        #[test]
        fn config_digest_equals_revision(
            lists in proptest::collection::vec(
                proptest::collection::vec("[a-c*.]{0,3}", 0..4), 9
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
                rotation: Some(Rotation { bundle_overlap_ms: 7 }),
                tracing: Some(Tracing { http: true, ..Tracing::default() }),
                log_output: Some(LogOutput { not_on_host: true, ..LogOutput::default() }),
                rate_limits: named(6).map(|name| RateLimit { name, ..RateLimit::default() }).collect(),
                shared_filters: named(3)
                    .map(|name| SharedFilter { name, ..SharedFilter::default() })
                    .collect(),
                filters: Some(Box::new(RequestFilters { grpc_web: true, ..RequestFilters::default() })),
                measured_routes: named(8).collect(),
                rollout: Some(Rollout { approved: "7".to_owned(), ..Rollout::default() }),
            };
            digest::canonicalize(&mut snapshot);
            let revision = digest::revision(&snapshot);
            let encoded = encode(&snapshot);
            prop_assert_eq!(encoded.config_digest(), revision);
        }
    }
}
