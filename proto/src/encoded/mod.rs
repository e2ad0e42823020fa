//! Keeps snapshots in encoded form, which takes much less memory.
//!
//! Parts are encoded separately, so comparing bytes shows which parts a change affects. Never print
//! a private key.

mod backends;
mod builder;
mod differences;
mod endpoints;
mod parts;
mod route_tables;
mod substitutes;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use prost::Message as _;

pub use self::backends::BackendChanges;
pub(crate) use self::builder::ConfigBuilder;
use self::parts::{Parts, encoded, is_same};
pub use self::route_tables::{EncodedHost, EncodedTable};
pub use self::substitutes::Substitutes;
use crate::delta::{GatewayDelta, RouteTableDelta};
use crate::digest;
use crate::keys::KeyPair;
use crate::schema::{
    Backend, Edge, EndpointSet, KeyRef, Port, RateLimit, RequestFilters, Rotation, SharedFilter,
    Snapshot, Transport, TrustBundle,
};
use crate::wire::{self, numbers};

/// An encoded snapshot with its key pairs and frequently needed values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedSnapshot {
    gateway: String,
    parts: Parts,
    addresses: Vec<String>,
    ports: BTreeMap<(Transport, u32), u32>,
    serials: BTreeMap<String, String>,
    first_expiry: Option<i64>,
    lacks_ticket_keys: bool,
    counts: Counts,
    edge: Edge,
    rotation: Rotation,
    measured_routes: Arc<[String]>,
    rate_limits: Arc<[RateLimit]>,
    shared_filters: Arc<[SharedFilter]>,
    filters: Option<Arc<RequestFilters>>,
    /// Shared by all versions with the same key pairs.
    keys: Arc<[KeyPair]>,
}

impl EncodedSnapshot {
    /// Encodes a snapshot. `keys` must be in the order of `snapshot.keys`.
    pub fn new(snapshot: &Snapshot, keys: Vec<KeyPair>) -> Self {
        let not_after = snapshot.keys.iter().map(|key| key.not_after);
        let tables = snapshot.route_tables.iter();
        Self {
            gateway: snapshot.gateway.clone(),
            parts: Parts::of(snapshot),
            addresses: snapshot.addresses.clone(),
            ports: snapshot
                .ports
                .iter()
                .map(|port| ((port.transport(), port.port), port.opened()))
                .collect(),
            serials: serials(snapshot),
            first_expiry: not_after.filter(|end| *end > 0).min(),
            lacks_ticket_keys: lacks_ticket_keys(&snapshot.ports, &keys),
            counts: Counts {
                listeners: snapshot.ports.iter().map(|port| port.listeners.len()).sum(),
                hostnames: tables.map(route_tables::hostnames).sum(),
                backends: snapshot.backends.len(),
            },
            edge: snapshot.edge.unwrap_or_default(),
            rotation: snapshot.rotation.unwrap_or_default(),
            measured_routes: snapshot.measured_routes.as_slice().into(),
            rate_limits: snapshot.rate_limits.as_slice().into(),
            shared_filters: snapshot.shared_filters.as_slice().into(),
            filters: snapshot.filters.clone().map(Arc::from),
            keys: keys.into(),
        }
    }

    /// Replaces the key pairs. `keys` must be in the order of the snapshot's references.
    #[must_use]
    pub fn with_keys(self, keys: Vec<KeyPair>) -> Self {
        let ports = decoded(&self.parts.ahead).ports;
        Self {
            lacks_ticket_keys: lacks_ticket_keys(&ports, &keys),
            keys: keys.into(),
            ..self
        }
    }

    /// Replaces all endpoint sets.
    #[must_use]
    pub fn with_endpoints(&self, sets: &[EndpointSet]) -> Self {
        let mut changed = self.clone();
        changed.parts.endpoints = encoded(numbers::snapshot::ENDPOINTS, sets);
        changed
    }

    /// Replaces endpoint sets by name, and ignores sets that the snapshot lacks.
    pub fn with_changed_endpoints(&self, sets: &[EndpointSet]) -> Option<Self> {
        let mut changed = self.clone();
        changed.parts.endpoints = endpoints::patch(&self.parts.endpoints, sets)?.into();
        Some(changed)
    }

    /// Returns the endpoint sets that differ from `before`, and their backends. Returns `None` if a
    /// set was added or removed.
    pub fn replaced_endpoints(&self, before: &Self) -> Option<(Vec<EndpointSet>, Vec<Backend>)> {
        let sets = endpoints::replaced(&before.parts.endpoints, &self.parts.endpoints)?;
        let names: HashSet<&[u8]> = sets.iter().map(|set| set.name.as_bytes()).collect();
        let mut backends = Vec::new();
        for backend in wire::contents(&self.parts.backends, numbers::snapshot::BACKENDS)? {
            if names.contains(endpoints::set_of(backend)) {
                backends.push(Backend::decode(backend).ok()?);
            }
        }
        Some((sets, backends))
    }

    /// Returns the names of endpoint sets that are in both snapshots and differ.
    pub fn changed_endpoints(&self, before: &Self) -> Vec<&str> {
        if is_same(&self.parts.endpoints, &before.parts.endpoints) {
            return Vec::new();
        }
        // Non-canonical encodings cannot be compared, so report no changes.
        endpoints::changed(&before.parts.endpoints, &self.parts.endpoints).unwrap_or_default()
    }

    /// Replaces virtual hosts. Returns `None` if a virtual host differs from the delta's old
    /// version.
    pub fn with_changed_hosts(&self, delta: &RouteTableDelta) -> Option<Self> {
        let mut changed = self.clone();
        changed.parts.route_tables = route_tables::patch(&self.parts.route_tables, delta)?.into();
        Some(changed)
    }

    /// Applies a delta. Returns `None` if the delta is for another version.
    pub fn with_changes(&self, delta: &GatewayDelta) -> Option<Self> {
        let GatewayDelta {
            route_tables,
            backends,
            endpoints,
        } = delta;
        let changed = self.with_changed_hosts(route_tables)?;
        let mut changed = changed.with_changed_backends(backends)?;
        if !endpoints.is_empty() {
            changed.parts.endpoints =
                backends::patched_endpoints(&self.parts.endpoints, endpoints)?;
        }
        Some(changed)
    }

    /// Compares the parts byte for byte.
    pub fn unchanged_since(&self, before: &Self) -> UnchangedParts {
        let (now, old) = (&self.parts, &before.parts);
        UnchangedParts {
            route_tables: is_same(&now.route_tables, &old.route_tables),
            backends: is_same(&now.backends, &old.backends),
            endpoints: is_same(&now.endpoints, &old.endpoints),
            rest: is_same(&now.ahead, &old.ahead)
                && is_same(&now.behind, &old.behind)
                && self.keys == before.keys,
        }
    }

    /// Returns client settings.
    pub fn edge(&self) -> Edge {
        self.edge
    }

    /// Returns credential rotation settings.
    pub fn rotation(&self) -> Rotation {
        self.rotation
    }

    /// Returns the routes with separate statistics.
    pub fn measured_routes(&self) -> &[String] {
        &self.measured_routes
    }

    /// Returns the rate limits, sorted by name.
    pub fn rate_limits(&self) -> &[RateLimit] {
        &self.rate_limits
    }

    /// Returns shared filters, sorted by name.
    pub fn shared_filters(&self) -> &[SharedFilter] {
        &self.shared_filters
    }

    /// Returns the default filters of virtual hosts.
    pub fn filters(&self) -> Option<&RequestFilters> {
        self.filters.as_deref()
    }

    /// Decodes the references to key pairs.
    pub fn key_refs(&self) -> Vec<KeyRef> {
        decoded(&self.parts.behind).keys
    }

    /// Decodes the trust bundles.
    pub fn trust_bundles(&self) -> Vec<TrustBundle> {
        decoded(&self.parts.behind).trust_bundles
    }

    /// Returns `Gateway/namespace/name`.
    pub fn gateway(&self) -> &str {
        &self.gateway
    }

    /// Decodes the snapshot.
    pub fn snapshot(&self) -> Snapshot {
        decoded(&self.bytes())
    }

    /// Decodes the snapshot without route tables, its largest part.
    pub fn without_route_tables(&self) -> Snapshot {
        let Parts {
            ahead,
            route_tables: _,
            backends,
            behind,
            endpoints,
        } = &self.parts;
        decoded(&[&ahead[..], backends, behind, endpoints].concat())
    }

    /// Decodes the snapshot without route tables and endpoint sets.
    pub fn without_route_tables_and_endpoints(&self) -> Snapshot {
        let Parts {
            ahead,
            route_tables: _,
            backends,
            behind,
            endpoints: _,
        } = &self.parts;
        decoded(&[&ahead[..], backends, behind].concat())
    }

    /// Returns the route tables with encoded virtual hosts, or `None` if the encoding is not as
    /// expected.
    pub fn route_tables(&self) -> Option<Vec<EncodedTable<'_>>> {
        route_tables::tables(&self.parts.route_tables)
    }

    /// Returns the encoded size of the route tables in bytes.
    pub fn size_of_route_tables(&self) -> usize {
        self.parts.route_tables.len()
    }

    /// Returns the encoded size of the backends in bytes.
    pub fn size_of_backends(&self) -> usize {
        self.parts.backends.len()
    }

    /// Returns all endpoint sets that backends use, even missing ones. Returns `None` if the
    /// encoding is not as expected.
    pub fn used_endpoints(&self) -> Option<BTreeSet<&str>> {
        let backends = wire::contents(&self.parts.backends, numbers::snapshot::BACKENDS)?;
        let names = backends.into_iter().map(endpoints::set_of);
        names.map(|name| std::str::from_utf8(name).ok()).collect()
    }

    /// Returns the SHA-256 in hex, excluding endpoints and private keys. If the snapshot is
    /// canonical, this is its revision.
    pub fn config_digest(&self) -> String {
        let Parts {
            ahead,
            route_tables,
            backends,
            behind,
            endpoints: _,
        } = &self.parts;
        digest::sha256_of_all(&[ahead, route_tables, backends, behind])
    }

    /// Returns the SHA-256 in hex, excluding private keys but including their digests.
    pub fn digest(&self) -> String {
        digest::sha256_of_all(&self.parts.all())
    }

    /// Decodes the endpoint sets with these names, if they exist. Returns `None` if the encoding is
    /// not as expected.
    pub fn endpoints_of(&self, names: &BTreeSet<&str>) -> Option<Vec<EndpointSet>> {
        endpoints::named(&self.parts.endpoints, names)
    }

    /// Decodes all endpoint sets.
    pub fn endpoints(&self) -> Vec<EndpointSet> {
        decoded(&self.parts.endpoints).endpoints
    }

    /// Returns the encoded snapshot, whose fields are not in numeric order.
    pub fn bytes(&self) -> Vec<u8> {
        self.parts.all().concat()
    }

    /// Returns the addresses that the Gateway's `spec` requests.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Returns the port that hosts open for each external port.
    pub fn ports(&self) -> &BTreeMap<(Transport, u32), u32> {
        &self.ports
    }

    /// Returns the certificate serial numbers that clients should see, by key name.
    pub fn serials(&self) -> &BTreeMap<String, String> {
        &self.serials
    }

    /// Returns the earliest certificate expiry as a Unix timestamp.
    pub fn first_expiry(&self) -> Option<i64> {
        self.first_expiry
    }

    /// Returns true if a listener's session ticket keys are missing, in which case hosts use their
    /// own.
    pub fn lacks_ticket_keys(&self) -> bool {
        self.lacks_ticket_keys
    }

    /// Returns the object counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the key pairs, in the snapshot's order.
    pub fn keys(&self) -> &[KeyPair] {
        &self.keys
    }
}

fn decoded(bytes: &[u8]) -> Snapshot {
    #[expect(clippy::expect_used, reason = "proven")]
    Snapshot::decode(bytes).expect("`EncodedSnapshot` encoded these bytes from a Snapshot")
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

/// True for each part that has the same bytes in two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each part can change independently"
)]
pub struct UnchangedParts {
    /// Route tables.
    pub route_tables: bool,
    /// Backends.
    pub backends: bool,
    /// Endpoint sets.
    pub endpoints: bool,
    /// Listeners, trust bundles, key pairs and settings.
    pub rest: bool,
}

fn lacks_ticket_keys(ports: &[Port], keys: &[KeyPair]) -> bool {
    let listeners = ports.iter().flat_map(|port| &port.listeners);
    let names = listeners.filter_map(|listener| Some(&listener.tls.as_ref()?.session_ticket_keys));
    let is_here = |name: &String| name.is_empty() || keys.iter().any(|pair| pair.name == *name);
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
    use crate::delta::ChangedHost;
    use crate::schema::{
        Backend, Endpoint, EndpointSet, KeyRef, Port, Route, RouteTable, VirtualHost,
    };
    use crate::schema::{LogOutput, Tracing};
    use proptest::prelude::*;

    use super::*;
    use crate::refusal;
    use crate::schema::DirectResponse;
    use crate::schema::route::Action;

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
        };
        let encoded = encode(&snapshot);
        assert_eq!(encoded.snapshot(), snapshot);
        assert_eq!(encoded.serials()["name"], "01");
        let moved = encoded.with_endpoints(&[EndpointSet::default(), EndpointSet::default()]);
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
        let of = |hosts: &[ChangedHost]| hosts.iter().cloned().collect::<RouteTableDelta>();
        let changes = [
            change("http/80", host("b", 100), host("b", 1)),
            change("http/82", host("a", 0), host("a", 3)),
        ];
        snapshot.route_tables[0].virtual_hosts[1] = host("b", 1);
        snapshot.route_tables[2].virtual_hosts[0] = host("a", 3);
        let after = encode(&snapshot);
        assert_eq!(
            before.with_changed_hosts(&of(&changes)),
            Some(after.clone())
        );
        assert_eq!(
            after.with_changed_hosts(&of(&changes)),
            None,
            "the snapshot is already changed"
        );
        for (table, domain) in [("http/81", "a"), ("http/80", "*"), ("none", "a")] {
            let nowhere = change(table, host(domain, 1), host(domain, 2));
            assert_eq!(
                before.with_changed_hosts(&of(&[nowhere])),
                None,
                "{table} {domain}"
            );
        }
        let twice = [changes[0].clone(), changes[0].clone()];
        assert_eq!(before.with_changed_hosts(&of(&twice)), None);
        snapshot.route_tables[0].virtual_hosts = vec![host("b", 100); 2];
        let two = encode(&snapshot);
        assert_eq!(two.with_changed_hosts(&of(&changes[..1])), None);
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
                })
                .collect(),
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
            before.with_changed_endpoints(&changed),
            Some(encode(&snapshot))
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
            };
            digest::canonicalize(&mut snapshot);
            let revision = digest::revision(&snapshot);
            let encoded = encode(&snapshot);
            prop_assert_eq!(encoded.config_digest(), revision);
        }
    }
}
