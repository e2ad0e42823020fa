//! Combinations of two versions of a snapshot, for changes that are held.

use std::sync::Arc;

use super::entry::{Entry, place};
use super::{EncodedSnapshot, Rest, lacks_ticket_keys};
use crate::digest::domain_order;
use crate::keys::KeyPair;
use crate::owned;
use crate::schema::shared_filter::Kind;
use crate::schema::{
    ClientAddress, Edge, EndpointSet, Listener, Port, SharedFilter, Snapshot, TlsTermination,
    TokenPolicy,
};

impl EncodedSnapshot {
    /// Returns this version with the endpoints, key pairs, CA certificates and key sets that `newer`
    /// has for it. Services that `newer` does not use lose their endpoints, because other Pods may
    /// get the addresses.
    #[must_use]
    pub fn with_material_of(&self, newer: &Self) -> Self {
        self.with_material(newer, &[])
    }

    /// Like [`with_material_of`](Self::with_material_of), but `others` are current endpoint sets
    /// that `newer` does not use.
    #[must_use]
    pub fn with_material(&self, newer: &Self, others: &[Entry]) -> Self {
        let mut rest = self.rest().clone();
        let pairs = self.newer_keys(newer, &mut rest);
        for bundle in &newer.rest().trust_bundles {
            let place = rest
                .trust_bundles
                .binary_search_by(|it| it.name.cmp(&bundle.name));
            if let Some(old) = place.ok().and_then(|it| rest.trust_bundles.get_mut(it)) {
                old.clone_from(bundle);
            }
        }
        for filter in &mut rest.shared_filters {
            let Some(Kind::Tokens(policy)) = &mut filter.kind else {
                continue;
            };
            let new = newer.rest().shared_filters.iter();
            if let Some(new) = new.filter(|it| it.name == filter.name).find_map(tokens) {
                take_key_sets(policy, new);
            }
        }
        let is_gone = |name: &str| {
            place(&newer.endpoints, name).is_err()
                && !EndpointSet::counts_hosts(name)
                && !others.iter().any(|other| other.name() == name)
        };
        let gone = self.endpoints.iter().filter(|it| is_gone(it.name()));
        let emptied = gone.map(|set| {
            Entry::new(&EndpointSet {
                name: set.name().to_owned(),
                ..EndpointSet::default()
            })
        });
        let emptied: Vec<Entry> = emptied.collect();
        let changed = self.with_changed_endpoints(newer.endpoint_entries());
        let changed = changed.with_changed_endpoints(&emptied);
        let changed = changed.with_changed_endpoints(others);
        if rest == *self.rest() && *pairs == *self.keys {
            return changed;
        }
        changed.with_rest(rest, pairs.into())
    }

    /// Replaces the references in `rest`, and returns the key pairs.
    fn newer_keys(&self, newer: &Self, rest: &mut Snapshot) -> Vec<KeyPair> {
        let mut pairs: Vec<KeyPair> = self.keys.to_vec();
        let same = newer.keys.iter();
        for (key, new) in same.filter_map(|pair| {
            let refs = &newer.rest().keys;
            let place = refs.binary_search_by(|it| it.name.cmp(&pair.name)).ok()?;
            Some((refs.get(place)?, pair))
        }) {
            let place = rest.keys.binary_search_by(|it| it.name.cmp(&key.name));
            let Some(old) = place.ok().and_then(|place| rest.keys.get_mut(place)) else {
                continue;
            };
            old.clone_from(key);
            match pairs.binary_search_by(|it| it.name.cmp(&new.name)) {
                Ok(place) => pairs[place].clone_from(new),
                Err(place) => pairs.insert(place, new.clone()),
            }
        }
        pairs
    }

    /// Returns this version with the owner's listener settings of `older`. Returns `None` if the
    /// owner's listeners, their names or certificates differ, or what identifies clients or
    /// normalizes requests: routes may depend on these.
    pub fn with_listeners_of(&self, older: &Self) -> Option<Self> {
        let (new, old) = (self.rest(), older.rest());
        let is_same = new.addresses == old.addresses
            && new.tracing == old.tracing
            && new.log_output == old.log_output
            && guards(new.edge) == guards(old.edge)
            && routed(&new.ports) == routed(&old.ports)
            && new.ports.iter().all(|port| {
                let before = port_of(&old.ports, port);
                before.is_none_or(|before| identity(port, new) == identity(before, old))
            });
        is_same.then(|| {
            let rest = Snapshot {
                ports: combined_ports(&new.ports, &old.ports),
                edge: old.edge,
                ..new.clone()
            };
            self.clone().with_rest(rest, Arc::clone(&self.keys))
        })
    }

    fn with_rest(self, rest: Snapshot, keys: Arc<[KeyPair]>) -> Self {
        Self {
            lacks_ticket_keys: lacks_ticket_keys(&rest.ports, &keys),
            rest: Arc::new(Rest::new(rest)),
            keys,
            ..self
        }
    }
}

fn tokens(filter: &SharedFilter) -> Option<&TokenPolicy> {
    match &filter.kind {
        Some(Kind::Tokens(policy)) => Some(policy),
        _ => None,
    }
}

fn take_key_sets(old: &mut TokenPolicy, new: &TokenPolicy) {
    for provider in &mut old.providers {
        let mut all = new.providers.iter();
        let same = all.find(|it| (&it.name, &it.issuer) == (&provider.name, &provider.issuer));
        if let Some(same) = same {
            provider.jwks.clone_from(&same.jwks);
        }
    }
}

fn port_of<'p>(ports: &'p [Port], port: &Port) -> Option<&'p Port> {
    let mut ports = ports.iter();
    ports.find(|it| (it.transport, it.port) == (port.transport, port.port))
}

/// Keeps the owner's listeners and all settings of ports, but takes users' listeners and layer 4
/// routes from `new`.
fn combined_ports(new: &[Port], old: &[Port]) -> Vec<Port> {
    let kept = old.iter();
    let kept = kept.filter(|port| port.http3 && owned::is_owned(port, old));
    let others = new.iter();
    let others = others.filter(|port| !port.http3 || !owned::is_owned(port, new));
    let others = others.map(|port| match port_of(old, port) {
        None => port.clone(),
        Some(before) => {
            let listeners = port.listeners.iter();
            Port {
                listeners: listeners.map(|it| combined(it, before)).collect(),
                client_address: before.client_address.clone(),
                ..*before
            }
        }
    });
    let mut all: Vec<Port> = others.chain(kept.cloned()).collect();
    all.sort_by_key(|port| (port.transport, port.port));
    for port in &mut all {
        port.listeners.sort_by(|a, b| {
            (domain_order(&a.hostname), &a.name).cmp(&(domain_order(&b.hostname), &b.name))
        });
    }
    all
}

fn combined(new: &Listener, before: &Port) -> Listener {
    let mut old = before.listeners.iter();
    let old = old.find(|old| old.name == new.name && !owned::is_of_user(&old.name));
    Listener {
        l4_routes: new.l4_routes.clone(),
        ..old.unwrap_or(new).clone()
    }
}

/// Returns what determines a client's address, and which routes its requests reach.
fn identity<'p>(port: &'p Port, snapshot: &Snapshot) -> (i32, Option<&'p ClientAddress>, Edge) {
    let edge = guards(port.edge.or(snapshot.edge));
    (port.proxy_protocol, port.client_address.as_ref(), edge)
}

/// Omits settings on which no route, filter or backend can depend.
fn guards(edge: Option<Edge>) -> Edge {
    Edge {
        request_timeout_ms: None,
        request_headers_timeout_ms: None,
        stream_idle_timeout_ms: None,
        connection_idle_timeout_ms: None,
        tls_handshake_timeout_ms: None,
        udp_session_timeout_ms: None,
        max_request_headers_kib: None,
        max_request_headers: None,
        access_log: None,
        reject_http10: false,
        preserve_header_case: false,
        answer_expect: false,
        request_id: 0,
        server_header: 0,
        append_via: false,
        max_response_headers_kib: None,
        max_response_headers: None,
        max_connection_age_ms: 0,
        max_connection_requests: 0,
        keepalive_interval_ms: 0,
        max_concurrent_streams: None,
        connection_buffer_kib: None,
        ..edge.unwrap_or_default()
    }
}

/// Returns the owner's listeners, as far as they decide which connections reach which routes.
fn routed(ports: &[Port]) -> Vec<Port> {
    let mut ports = owned::ports(ports);
    ports.retain(|port| !port.http3);
    for port in &mut ports {
        port.edge = None;
        let tls = port.listeners.iter_mut();
        for tls in tls.filter_map(|listener| listener.tls.as_mut()) {
            *tls = TlsTermination {
                min_version: 0,
                max_version: 0,
                cipher_suites: Vec::new(),
                key_exchange_groups: Vec::new(),
                alpn: Vec::new(),
                ..std::mem::take(tls)
            };
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tls_termination::Version;
    use crate::schema::{Endpoint, KeyRef, L4Route, RouteTable, TokenProvider, TrustBundle};

    fn version(number: u32) -> EncodedSnapshot {
        let keys = ["a", "b", "c"].map(|name| KeyPair {
            name: name.to_owned(),
            private_key: vec![u8::try_from(number).unwrap()],
            ..KeyPair::default()
        });
        let snapshot = Snapshot {
            gateway: "Gateway/ns/edge".to_owned(),
            ports: vec![Port {
                port: 443,
                listeners: vec![Listener {
                    name: "https".to_owned(),
                    tls: Some(TlsTermination::default()),
                    ..Listener::default()
                }],
                ..Port::default()
            }],
            route_tables: vec![RouteTable {
                name: format!("table-{number}"),
                ..RouteTable::default()
            }],
            endpoints: ["one", "two"]
                .map(|name| EndpointSet {
                    name: name.to_owned(),
                    endpoints: vec![Endpoint {
                        port: number,
                        ..Endpoint::default()
                    }],
                    ..EndpointSet::default()
                })
                .to_vec(),
            keys: keys
                .iter()
                .map(|pair| KeyRef {
                    name: pair.name.clone(),
                    digest: pair.digest(),
                    ..KeyRef::default()
                })
                .collect(),
            trust_bundles: vec![TrustBundle {
                name: "ca".to_owned(),
                pem: number.to_string(),
                ..TrustBundle::default()
            }],
            shared_filters: vec![SharedFilter {
                name: "policy".to_owned(),
                kind: Some(Kind::Tokens(TokenPolicy {
                    providers: vec![TokenProvider {
                        name: "issuer".to_owned(),
                        jwks: number.to_string(),
                        ..TokenProvider::default()
                    }],
                    report_only: number == 2,
                })),
            }],
            ..Snapshot::default()
        };
        EncodedSnapshot::new(&snapshot, keys.to_vec())
    }

    #[test]
    fn held_version_gets_endpoints_keys_and_authorities() {
        let (old, new) = (version(1), version(2));
        let held = old.with_material_of(&new).snapshot();
        let (old, new) = (old.snapshot(), new.snapshot());
        assert_eq!(held.endpoints, new.endpoints);
        assert_eq!(held.trust_bundles, new.trust_bundles);
        assert_eq!(held.keys, new.keys);
        assert_eq!(held.route_tables, old.route_tables);
        let policy = tokens(&held.shared_filters[0]).unwrap();
        assert_eq!(policy.providers[0].jwks, "2");
        assert!(!policy.report_only);
    }

    #[test]
    fn changes_of_users_pass_beside_held_listener() {
        let listener = |name: &str, hostname: &str| Listener {
            name: name.to_owned(),
            hostname: hostname.to_owned(),
            l4_routes: vec![L4Route {
                name: hostname.to_owned(),
                ..L4Route::default()
            }],
            ..Listener::default()
        };
        let with = |number: u32, hosts: &[&str]| {
            let mut snapshot = version(number).snapshot();
            let own = &mut snapshot.ports[0].listeners[0];
            own.l4_routes = listener("", &number.to_string()).l4_routes;
            own.tls.as_mut().unwrap().min_version = i32::from(number == 2);
            let hosts = hosts
                .iter()
                .map(|host| listener(&format!("TLSHost/{host}"), host));
            snapshot.ports[0].listeners.splice(0..0, hosts);
            snapshot.ports.push(Port {
                port: 8000 + number,
                listeners: vec![listener("ListenerSet/ns/set/listeners/a", "")],
                ..Port::default()
            });
            snapshot
        };
        let [old, new] = [with(1, &["a.test"]), with(2, &["b.test"])];
        assert_ne!(owned::listeners(&old), owned::listeners(&new));
        let encoded = |snapshot: &Snapshot| EncodedSnapshot::new(snapshot, Vec::new());
        let held = encoded(&new).with_listeners_of(&encoded(&old)).unwrap();
        let mut expected = new.ports.clone();
        expected[0].listeners[1].tls = Some(TlsTermination::default());
        assert_eq!(held.snapshot().ports, expected);
        assert_eq!(owned::listeners(&held.snapshot()), owned::listeners(&old));
    }

    #[test]
    fn sets_of_waiting_hosts_keep_current_endpoints() {
        let (old, new) = (version(1), version(2));
        let mut fewer = new.snapshot();
        let other = Entry::new(&fewer.endpoints.remove(0));
        let newer = EncodedSnapshot::new(&fewer, new.keys().to_vec());
        let held = old.with_material(&newer, &[other]);
        assert_eq!(held.endpoints(), new.endpoints());
        assert_eq!(held.staged_digest(), old.staged_digest());
    }

    #[test]
    fn withdrawn_material_stays_and_new_is_ignored() {
        let (old, new) = (version(1), version(2));
        let mut fewer = new.snapshot();
        fewer.keys.remove(0);
        fewer.endpoints.remove(0);
        fewer.trust_bundles[0].name = "other".to_owned();
        let keys = new.keys()[1..].to_vec();
        let held = old.with_material_of(&EncodedSnapshot::new(&fewer, keys));
        let numbers: Vec<u8> = held.keys().iter().map(|it| it.private_key[0]).collect();
        assert_eq!(numbers, [1, 2, 2]);
        let endpoints = held.endpoints();
        let port = |it: &EndpointSet| it.endpoints.first().map(|it| it.port);
        let ports: Vec<Option<u32>> = endpoints.iter().map(port).collect();
        assert_eq!(ports, [None, Some(2)], "a foreign Pod may get the address");
        assert_eq!(held.rest().trust_bundles, old.rest().trust_bundles);
        assert_eq!(old.with_material_of(&old), old);
    }

    #[test]
    fn routes_pass_only_if_settings_of_listeners_differ() {
        let old = version(1);
        let changed = |change: fn(&mut Snapshot)| {
            let mut new = version(2).snapshot();
            change(&mut new);
            EncodedSnapshot::new(&new, version(2).keys().to_vec())
        };
        for change in [
            (|new| new.ports[0].edge = Some(Edge::default())) as fn(&mut Snapshot),
            |new| {
                new.edge = Some(Edge {
                    reject_http10: true,
                    ..Edge::default()
                });
            },
            |new| {
                new.ports.push(Port {
                    transport: crate::schema::Transport::Udp.into(),
                    port: 443,
                    http3: true,
                    ..Port::default()
                });
            },
            |new| {
                let tls = new.ports[0].listeners[0].tls.as_mut().unwrap();
                tls.min_version = Version::Tls13.into();
            },
        ] {
            let new = changed(change);
            let held = new.with_listeners_of(&old).expect("routes pass").snapshot();
            assert_eq!((&held.ports, held.edge), (&old.snapshot().ports, None));
            assert_eq!(held.route_tables, new.snapshot().route_tables);
        }
        for change in [
            (|new| new.ports[0].listeners[0].hostname = "a.test".to_owned()) as fn(&mut Snapshot),
            |new| new.ports[0].listeners[0].tls.as_mut().unwrap().client_mode = 1,
            |new| new.ports[0].listeners.clear(),
            |new| new.ports[0].port = 444,
            |new| new.addresses.push("192.0.2.1".to_owned()),
            |new| new.tracing = Some(crate::schema::Tracing::default()),
            |new| new.ports[0].proxy_protocol = 1,
            |new| new.ports[0].client_address = Some(ClientAddress::default()),
            |new| {
                new.edge = Some(Edge {
                    keep_repeated_slashes: true,
                    ..Edge::default()
                });
            },
            |new| {
                new.ports[0].edge = Some(Edge {
                    forwarded_client_certificate: 1,
                    ..Edge::default()
                });
            },
        ] {
            assert_eq!(changed(change).with_listeners_of(&old), None);
        }
    }
}
