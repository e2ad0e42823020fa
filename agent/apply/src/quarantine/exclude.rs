//! Removes culprits, and the parts that depend on them, from a snapshot.
//!
//! Requests that match a culprit get a 500 instead of falling through to a less specific route,
//! unless Envoy rejects even the match. Parts that would lose their protection are removed, too. A
//! client key for a backend is an exception: it protects the backend, which rejects requests
//! without it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use sesame_proto::refusal;
use sesame_proto::schema::{
    Backend, BackendTls, DirectResponse, Forward, KeyRef, L4Route, Listener, LogOutput, LogSink,
    PathMatch, Port, RateLimit, RequestFilters, Route, RouteTable, SharedFilter, Snapshot,
    VirtualHost, WeightedBackend, path_match::Kind, route::Action,
};

use super::memory::Culprits;
use super::piece::Piece;

pub(super) struct Removed<'a> {
    culprits: &'a Culprits,
    pub(super) backends: BTreeSet<&'a str>,
    pub(super) listeners: BTreeSet<&'a str>,
}

impl<'a> Removed<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, culprits: &'a Culprits) -> Self {
        let mut removed = Self {
            culprits,
            backends: BTreeSet::new(),
            listeners: BTreeSet::new(),
        };
        for backend in &snapshot.backends {
            if removed.causes_of_backend(backend).next().is_some() {
                removed.backends.insert(&backend.name);
            }
        }
        for listener in snapshot.ports.iter().flat_map(|port| &port.listeners) {
            if removed.causes_of_listener(listener).next().is_some() {
                removed.listeners.insert(&listener.name);
            }
        }
        removed
    }

    /// Returns true if the piece is rejected and no previously accepted version is served instead.
    fn has(&self, piece: &Piece) -> bool {
        let culprit = self.culprits.get(piece);
        culprit.is_some_and(|culprit| culprit.put_back.is_none())
    }

    fn key(&self, key: &KeyRef) -> Option<KeyRef> {
        match self.culprits.get(&Piece::Key(key.name.clone())) {
            Some(culprit) => culprit.put_back.clone(),
            None => Some(key.clone()),
        }
    }

    pub(super) fn causes_of_backend(&self, backend: &Backend) -> impl Iterator<Item = Piece> {
        let Backend {
            name,
            endpoints,
            protocol: _,
            tls,
            session_key: _,
            idle_timeout_ms: _,
            load_balancer: _,
            health_check: _,
            outlier: _,
            breaker: _,
            connections: _,
            panic_percent: _,
            zone_preference: _,
            weighted: _,
            // Without it, only the requests that it would get fail.
            fallback: _,
        } = backend;
        let mut causes = vec![
            Piece::Backend(name.clone()),
            Piece::Endpoints(endpoints.clone()),
        ];
        if let Some(BackendTls {
            sni: _,
            trust_bundle,
            dns_names: _,
            uris: _,
            client_key: _,
            dns_suffixes: _,
            uri_prefixes: _,
            mesh: _,
            min_version: _,
            max_version: _,
            cipher_suites: _,
            unverified: _,
            key_exchange_groups: _,
        }) = tls.as_deref()
        {
            causes.push(Piece::TrustBundle(trust_bundle.clone()));
        }
        causes.into_iter().filter(|piece| self.has(piece))
    }

    /// Rejected keys are a cause only if the listener has no other keys.
    pub(super) fn causes_of_listener(&self, listener: &Listener) -> impl Iterator<Item = Piece> {
        let mut causes = vec![Piece::Listener(listener.name.clone())];
        if let Some(tls) = &listener.tls {
            causes.push(Piece::TrustBundle(tls.client_trust_bundle.clone()));
            let keys = tls.keys.iter().map(|key| Piece::Key(key.clone()));
            if keys.clone().all(|key| self.has(&key)) {
                causes.extend(keys);
            }
        }
        causes.into_iter().filter(|piece| self.has(piece))
    }
}

/// Returns the snapshot without the culprits. Ignores culprits that the snapshot does not contain.
pub fn exclude(snapshot: &Snapshot, culprits: &Culprits) -> Snapshot {
    if culprits.is_empty() {
        return snapshot.clone();
    }
    let removed = Removed::new(snapshot, culprits);
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
        rotation,
        tracing,
        log_output,
        measured_routes,
        rate_limits,
        shared_filters,
        filters,
        rollout,
    } = snapshot;
    let ports: Vec<Port> = ports
        .iter()
        .filter_map(|port| without_listeners(port, &removed))
        .collect();
    let listeners = ports.iter().flat_map(|port| &port.listeners);
    let used: BTreeSet<&str> = listeners.map(|it| it.route_table.as_str()).collect();
    let route_tables: Vec<RouteTable> = route_tables
        .iter()
        .filter(|table| removed.listeners.is_empty() || used.contains(table.name.as_str()))
        .map(|table| without_routes(table, &removed))
        .collect();
    Snapshot {
        gateway: gateway.clone(),
        addresses: addresses.clone(),
        rate_limits: named_limits(rate_limits, &route_tables),
        shared_filters: named_filters(shared_filters, filters.as_deref(), &route_tables),
        filters: filters.clone(),
        route_tables,
        backends: backends
            .iter()
            .filter(|backend| !removed.backends.contains(backend.name.as_str()))
            .map(|backend| without_client_key(backend, &removed))
            .collect(),
        endpoints: endpoints
            .iter()
            .filter(|set| !removed.has(&Piece::Endpoints(set.name.clone())))
            .cloned()
            .collect(),
        keys: keys.iter().filter_map(|key| removed.key(key)).collect(),
        trust_bundles: trust_bundles
            .iter()
            .filter(|bundle| !removed.has(&Piece::TrustBundle(bundle.name.clone())))
            .cloned()
            .collect(),
        ports,
        edge: *edge,
        rotation: *rotation,
        tracing: tracing
            .clone()
            .filter(|tracing| !removed.backends.contains(tracing.backend.as_str())),
        log_output: log_output.clone().map(|it| without_sinks(it, &removed)),
        measured_routes: measured_routes.clone(),
        rollout: rollout.clone(),
    }
}

/// Keeps the limits that remaining routes use. A route with a rejected limit is itself a culprit.
fn named_limits(limits: &[RateLimit], tables: &[RouteTable]) -> Vec<RateLimit> {
    let hosts = tables.iter().flat_map(|table| &table.virtual_hosts);
    let routes = hosts.flat_map(|host| &host.routes);
    let names: BTreeSet<&String> = routes.flat_map(|route| &route.rate_limits).collect();
    let kept = limits.iter().filter(|limit| names.contains(&limit.name));
    kept.cloned().collect()
}

/// Keeps the filters that remaining virtual hosts and routes use. A user of a rejected filter is
/// itself a culprit.
fn named_filters(
    filters: &[SharedFilter],
    of_hosts: Option<&RequestFilters>,
    tables: &[RouteTable],
) -> Vec<SharedFilter> {
    let hosts = tables.iter().flat_map(|table| &table.virtual_hosts);
    let mut names: BTreeSet<Cow<'_, str>> = of_hosts
        .into_iter()
        .flat_map(RequestFilters::shared)
        .collect();
    for host in hosts {
        names.extend(host.filters.iter().flat_map(RequestFilters::shared));
        names.extend(host.routes.iter().flat_map(Route::shared_filters));
    }
    let kept = filters.iter().filter(|it| names.contains(it.name.as_str()));
    kept.cloned().collect()
}

fn without_sinks(mut output: LogOutput, removed: &Removed<'_>) -> LogOutput {
    let is_gone = |sink: &LogSink| removed.backends.contains(sink.backend.as_str());
    output.sinks.retain(|sink| !is_gone(sink));
    output
}

fn without_client_key(backend: &Backend, removed: &Removed<'_>) -> Backend {
    let mut backend = backend.clone();
    if let Some(tls) = &mut backend.tls
        && removed.has(&Piece::Key(tls.client_key.clone()))
    {
        tls.client_key.clear();
    }
    backend
}

fn without_listeners(port: &Port, removed: &Removed<'_>) -> Option<Port> {
    let listeners: Vec<Listener> = port
        .listeners
        .iter()
        .filter(|listener| !removed.listeners.contains(listener.name.as_str()))
        .map(|listener| {
            let mut listener = listener.clone();
            if let Some(tls) = &mut listener.tls {
                tls.keys
                    .retain(|key| !removed.has(&Piece::Key(key.clone())));
            }
            listener
                .l4_routes
                .retain(|route| !removed.has(&Piece::L4Route(route.name.clone())));
            for L4Route { backends, .. } in &mut listener.l4_routes {
                refuse_shares(backends, removed);
            }
            listener
        })
        .collect();
    // HTTP/3 ports never have listeners.
    (port.http3 || !listeners.is_empty()).then(|| Port {
        listeners,
        client_address: port.client_address.clone(),
        ..*port
    })
}

fn without_routes(table: &RouteTable, removed: &Removed<'_>) -> RouteTable {
    let RouteTable {
        name,
        virtual_hosts,
    } = table;
    let without = |host| without_routes_of(name, host, removed);
    RouteTable {
        name: name.clone(),
        virtual_hosts: virtual_hosts.iter().filter_map(without).collect(),
    }
}

fn without_routes_of(
    table: &str,
    host: &VirtualHost,
    removed: &Removed<'_>,
) -> Option<VirtualHost> {
    let VirtualHost {
        domain,
        routes,
        external_auth,
        filters,
    } = host;
    let piece = Piece::VirtualHost {
        table: table.to_owned(),
        domain: domain.clone(),
    };
    match removed.culprits.get(&piece) {
        Some(culprit) if culprit.is_dropped() => None,
        // Requests must not fall through to a less specific virtual host that may not require
        // authorization.
        Some(_) => Some(refusing_all(host)),
        None => {
            let routes = routes.iter();
            let routes = routes.filter_map(|route| without_culprit(route, removed));
            Some(VirtualHost {
                domain: domain.clone(),
                routes: routes.collect(),
                external_auth: external_auth.clone(),
                filters: filters.clone(),
            })
        }
    }
}

pub(super) fn refusing_all(host: &VirtualHost) -> VirtualHost {
    let first = host.routes.first();
    VirtualHost {
        domain: host.domain.clone(),
        routes: vec![Route {
            name: first.map_or(&host.domain, |route| &route.name).clone(),
            path: Some(PathMatch {
                kind: Some(Kind::Prefix(String::new())),
            }),
            action: Some(Action::DirectResponse(DirectResponse::new(refusal::HTTP))),
            ..Route::default()
        }],
        external_auth: Vec::new(),
        filters: None,
    }
}

fn without_culprit(route: &Route, removed: &Removed<'_>) -> Option<Route> {
    match removed.culprits.get(&Piece::Route(route.name.clone())) {
        Some(culprit) if culprit.is_dropped() => None,
        Some(_) => Some(answering_500(route)),
        None => {
            // Without its authorization service, the route must not forward requests.
            let mut asked = route.external_auth.iter();
            if asked.any(|auth| removed.backends.contains(auth.backend.as_str())) {
                return Some(answering_500(route));
            }
            let mut route = route.clone();
            if let Some(Action::Forward(Forward {
                backends, mirrors, ..
            })) = &mut route.action
            {
                refuse_shares(backends, removed);
                mirrors.retain(|mirror| !removed.backends.contains(mirror.backend.as_str()));
            }
            Some(route)
        }
    }
}

pub(super) fn answering_500(route: &Route) -> Route {
    Route {
        name: route.name.clone(),
        path: route.path.clone(),
        method: route.method.clone(),
        headers: route.headers.clone(),
        query_params: route.query_params.clone(),
        action: Some(Action::DirectResponse(DirectResponse::new(refusal::HTTP))),
        request_headers: None,
        response_headers: None,
        cors: None,
        grpc: route.grpc,
        external_auth: Vec::new(),
        rate_limits: Vec::new(),
        filters: None,
    }
}

fn refuse_shares(backends: &mut [WeightedBackend], removed: &Removed<'_>) {
    for share in backends {
        if removed.backends.contains(share.backend.as_str()) {
            *share = WeightedBackend {
                backend: String::new(),
                weight: share.weight,
                request_headers: None,
                response_headers: None,
                rewrite: None,
            };
        }
    }
}
