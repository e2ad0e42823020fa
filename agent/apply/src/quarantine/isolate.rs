//! Builds probes: configurations that contain only the pieces to judge.
//!
//! A probe adds the minimum that makes Envoy check a piece, such as a listener for a key. It omits
//! unrelated references, so that no piece is blamed for an error in another piece.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema::{
    Backend, BackendTls, Forward, KeyRef, L4Route, Listener, OidcLogin, Port, Protocol, RateLimit,
    RequestFilters, Route, RouteTable, Snapshot, TlsTermination, Transport, TrustBundle,
    VirtualHost, WeightedBackend, route::Action,
};

use super::exclude::{answering_500, refusing_all};
use super::piece::{Piece, PieceContent, Pieces};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    All,
    /// Judge only the match or domain, with a 500 response.
    MatchOnly,
}

pub(super) fn isolate(pieces: &Pieces<'_>, group: &[Piece], depth: Depth) -> Snapshot {
    let mut builder = ProbeBuilder::default();
    for piece in group {
        let Some(content) = pieces.of.get(piece) else {
            continue;
        };
        match content {
            PieceContent::Key(key) => builder.key(key),
            PieceContent::TrustBundle(bundle) => builder.trust_bundle(bundle),
            PieceContent::Endpoints(set) => {
                builder.snapshot.endpoints.push((*set).clone());
                builder.snapshot.backends.push(Backend {
                    name: format!("alone/{}", set.name),
                    endpoints: set.name.clone(),
                    ..Backend::default()
                });
            }
            PieceContent::Backend(backend) => builder.backend(backend, pieces),
            PieceContent::VirtualHost(host) => {
                if let Piece::VirtualHost { table, .. } = piece {
                    builder.host(table, host, depth, pieces);
                }
            }
            PieceContent::Route(copies) => {
                for route in copies {
                    builder.route(route, depth, pieces);
                }
            }
            PieceContent::L4Route(copies) => {
                for (port, listener, route) in copies {
                    for share in &route.backends {
                        builder.plain_backend(&share.backend, pieces);
                    }
                    builder.listener(port, listener, vec![(*route).clone()], pieces);
                }
            }
            PieceContent::Listener(port, listener) => {
                // Envoy does not check a TLS listener that has no routes.
                let routes = if listener.protocol() == Protocol::Tls {
                    vec![nowhere("alone")]
                } else {
                    Vec::new()
                };
                builder.listener(port, listener, routes, pieces);
            }
        }
    }
    builder.finish()
}

#[derive(Default)]
struct ProbeBuilder {
    snapshot: Snapshot,
    routes: Vec<Route>,
    /// Several tables may have virtual hosts for the same domain.
    hosts: BTreeMap<String, Vec<VirtualHost>>,
    /// Session keys by backend. The backends themselves are not judged.
    plain_backends: BTreeMap<String, Vec<u8>>,
    keys: BTreeSet<String>,
    bundles: BTreeSet<String>,
}

impl ProbeBuilder {
    /// Returns the next port. Pieces for which no port number is left are judged only in the final
    /// validation.
    fn port(&self) -> u32 {
        u32::try_from(self.snapshot.ports.len()).map_or(u32::MAX, |ports| ports.saturating_add(1))
    }

    fn listen(&mut self, transport: Transport, listener: Listener) {
        let port = self.port();
        self.snapshot.ports.push(Port {
            transport: transport.into(),
            port,
            inside: 0,
            proxy_protocol: 0,
            http3: false,
            edge: None,
            client_address: None,
            listeners: vec![listener],
        });
    }

    fn http(&mut self, table: RouteTable) {
        let listener = Listener {
            name: format!("alone/{}", table.name),
            protocol: Protocol::Http.into(),
            route_table: table.name.clone(),
            ..Listener::default()
        };
        self.snapshot.route_tables.push(table);
        self.listen(Transport::Tcp, listener);
    }

    fn key(&mut self, key: &KeyRef) {
        if !self.keys.insert(key.name.clone()) {
            return;
        }
        self.snapshot.keys.push(key.clone());
        if key.serial.is_empty() {
            // Session ticket keys have no serial number. No listener presents them, and the agent
            // has already validated them.
            return;
        }
        let listener = Listener {
            name: format!("alone/{}", key.name),
            protocol: Protocol::Tls.into(),
            tls: Some(TlsTermination {
                keys: vec![key.name.clone()],
                ..TlsTermination::default()
            }),
            l4_routes: vec![nowhere("alone")],
            ..Listener::default()
        };
        self.listen(Transport::Tcp, listener);
    }

    fn trust_bundle(&mut self, bundle: &TrustBundle) {
        if !self.bundles.insert(bundle.name.clone()) {
            return;
        }
        self.snapshot.trust_bundles.push(bundle.clone());
        self.snapshot.backends.push(Backend {
            name: format!("alone/{}", bundle.name),
            tls: Some(Box::new(BackendTls {
                trust_bundle: bundle.name.clone(),
                dns_names: vec!["alone.invalid".to_owned()],
                ..BackendTls::default()
            })),
            ..Backend::default()
        });
    }

    /// The backend's secrets have already been judged, and its endpoints are a separate piece.
    fn backend(&mut self, backend: &Backend, pieces: &Pieces<'_>) {
        if let Some(tls) = &backend.tls {
            self.refer(&tls.client_key, &tls.trust_bundle, pieces);
        }
        self.snapshot.backends.push(Backend {
            endpoints: String::new(),
            ..backend.clone()
        });
    }

    /// Keeps the session key, because it determines which session clusters exist.
    fn plain_backend(&mut self, name: &str, pieces: &Pieces<'_>) {
        let session_key = match pieces.of.get(&Piece::Backend(name.to_owned())) {
            Some(PieceContent::Backend(backend)) => backend.session_key.clone(),
            _ => Vec::new(),
        };
        self.plain_backends.insert(name.to_owned(), session_key);
    }

    fn host(&mut self, table: &str, host: &VirtualHost, depth: Depth, pieces: &Pieces<'_>) {
        let alone = match depth {
            Depth::MatchOnly => refusing_all(host),
            Depth::All => {
                for auth in &host.external_auth {
                    self.plain_backend(&auth.backend, pieces);
                }
                let names = host.filters.iter().flat_map(RequestFilters::shared);
                self.shared_filters(names, pieces);
                VirtualHost {
                    domain: host.domain.clone(),
                    routes: Vec::new(),
                    external_auth: host.external_auth.clone(),
                    filters: host.filters.clone(),
                }
            }
        };
        self.hosts.entry(table.to_owned()).or_default().push(alone);
    }

    fn route(&mut self, route: &Route, depth: Depth, pieces: &Pieces<'_>) {
        if depth == Depth::MatchOnly {
            self.routes.push(answering_500(route));
            return;
        }
        if let Some(Action::Forward(Forward {
            backends, mirrors, ..
        })) = &route.action
        {
            let shares = backends.iter().map(|share| &share.backend);
            let mirrored = mirrors.iter().map(|mirror| &mirror.backend);
            for name in shares.chain(mirrored) {
                self.plain_backend(name, pieces);
            }
        }
        for auth in &route.external_auth {
            self.plain_backend(&auth.backend, pieces);
            // Only logins have such a key.
            self.refer(&OidcLogin::key(&auth.policy), "", pieces);
        }
        let named = |limit: &&RateLimit| route.rate_limits.contains(&limit.name);
        for limit in pieces.rate_limits.iter().filter(named) {
            if let Some(service) = &limit.service {
                self.plain_backend(&service.backend, pieces);
            }
            self.snapshot.rate_limits.push(limit.clone());
        }
        self.shared_filters(route.shared_filters(), pieces);
        self.routes.push(route.clone());
    }

    fn shared_filters<'n>(
        &mut self,
        names: impl Iterator<Item = Cow<'n, str>>,
        pieces: &Pieces<'_>,
    ) {
        for name in names {
            let found = pieces.shared_filters.iter().find(|it| it.name == name);
            self.snapshot.shared_filters.extend(found.cloned());
        }
    }

    fn listener(
        &mut self,
        port: &Port,
        listener: &Listener,
        l4_routes: Vec<L4Route>,
        pieces: &Pieces<'_>,
    ) {
        if let Some(tls) = &listener.tls {
            for key in &tls.keys {
                self.refer(key, "", pieces);
            }
            self.refer("", &tls.client_trust_bundle, pieces);
        }
        let table = &listener.route_table;
        if !table.is_empty() && !self.hosts.contains_key(table) {
            self.hosts.insert(table.clone(), Vec::new());
        }
        self.listen(
            port.transport(),
            Listener {
                l4_routes,
                ..listener.clone()
            },
        );
    }

    fn refer(&mut self, key: &str, bundle: &str, pieces: &Pieces<'_>) {
        if let Some(PieceContent::Key(key)) = pieces.of.get(&Piece::Key(key.to_owned()))
            && self.keys.insert(key.name.clone())
        {
            self.snapshot.keys.push((*key).clone());
        }
        if let Some(PieceContent::TrustBundle(bundle)) =
            pieces.of.get(&Piece::TrustBundle(bundle.to_owned()))
            && self.bundles.insert(bundle.name.clone())
        {
            self.snapshot.trust_bundles.push((*bundle).clone());
        }
    }

    fn finish(mut self) -> Snapshot {
        for (name, virtual_hosts) in std::mem::take(&mut self.hosts) {
            self.http(RouteTable {
                name,
                virtual_hosts,
            });
        }
        if !self.routes.is_empty() {
            let routes = std::mem::take(&mut self.routes);
            self.http(RouteTable {
                name: "alone".to_owned(),
                virtual_hosts: vec![VirtualHost {
                    domain: "*".to_owned(),
                    routes,
                    ..VirtualHost::default()
                }],
            });
        }
        let limits = &mut self.snapshot.rate_limits;
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        limits.dedup();
        let filters = &mut self.snapshot.shared_filters;
        filters.sort_by(|a, b| a.name.cmp(&b.name));
        filters.dedup();
        let there: BTreeSet<String> = self
            .snapshot
            .backends
            .iter()
            .map(|backend| backend.name.clone())
            .collect();
        for (name, session_key) in self.plain_backends {
            if !name.is_empty() && !there.contains(&name) {
                self.snapshot.backends.push(Backend {
                    name,
                    session_key,
                    ..Backend::default()
                });
            }
        }
        self.snapshot
    }
}

fn nowhere(name: &str) -> L4Route {
    L4Route {
        name: name.to_owned(),
        hostnames: Vec::new(),
        backends: vec![WeightedBackend {
            weight: 1,
            ..WeightedBackend::default()
        }],
        ..L4Route::default()
    }
}
