//! Determines which objects the quarantine affects, and the messages for their conditions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::{
    Forward, L4Route, Listener, Port, Protocol, Route, Snapshot, TlsTermination, Transport,
    WeightedBackend, route::Action,
};

use super::exclude::Removed;
use super::memory::{Culprit, Culprits};
use super::piece::Piece;
use super::unbound::{Unbound, UnboundSocket};

/// Effects of everything that is excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// All culprits.
    pub refused: Vec<Refused>,
    /// Why listeners are not open, by listener name in the snapshot.
    pub listeners: BTreeMap<String, String>,
    /// Effects on routes, by `HTTPRoute/namespace/name`.
    pub routes: BTreeMap<String, AffectedRoute>,
}

/// Effects on one route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedRoute {
    /// Why a rule lost a match, by rule index.
    pub rules: BTreeMap<usize, String>,
    /// Why a rule rejects the requests for one of its backends, by rule index.
    pub shares: BTreeMap<usize, String>,
    /// True if at least one match still works.
    pub works: bool,
}

/// A culprit as reported to users.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// Name in the snapshot, which includes the source object.
    pub object: String,
    /// Effect on requests, connections or other parts.
    pub effect: String,
    /// Envoy's message.
    pub envoy_words: String,
    /// When the culprit was found.
    pub since: Timestamp,
}

/// Returns the affected objects. `bound` returns the port number on which Envoy listens.
pub fn affected(
    snapshot: &Snapshot,
    culprits: &Culprits,
    unbound: &Unbound,
    bound: impl Fn(&Port) -> u32,
) -> Affected {
    let mut affected = Affected::default();
    let removed = Removed::new(snapshot, culprits);
    for (piece, culprit) in culprits {
        affected.refused.push(Refused {
            object: object(piece, snapshot),
            effect: effect(piece, culprit),
            envoy_words: culprit.envoy_words.clone(),
            since: culprit.since,
        });
    }
    for listener in snapshot.ports.iter().flat_map(|port| &port.listeners) {
        for cause in removed.causes_of_listener(listener) {
            affected
                .listeners
                .entry(listener.name.clone())
                .or_insert_with(|| why(culprits, &cause));
        }
    }
    record_routes(&mut affected.routes, snapshot, culprits, &removed);
    affected
        .routes
        .retain(|_, route| !(route.rules.is_empty() && route.shares.is_empty()));
    for socket in unbound.iter() {
        not_open(&mut affected, snapshot, socket, &bound);
    }
    affected.refused.sort();
    affected
}

fn why(culprits: &Culprits, piece: &Piece) -> String {
    let words = culprits.get(piece).map_or("", |c| c.envoy_words.as_str());
    format!("Envoy rejects {piece}: {words}")
}

fn record_routes(
    routes: &mut BTreeMap<String, AffectedRoute>,
    snapshot: &Snapshot,
    culprits: &Culprits,
    removed: &Removed<'_>,
) {
    let mut backends: BTreeMap<&str, String> = BTreeMap::new();
    for backend in &snapshot.backends {
        if let Some(cause) = removed.causes_of_backend(backend).next() {
            let reason = format!("{}; its share is rejected", why(culprits, &cause));
            backends.insert(&backend.name, reason);
        }
    }
    let share_of = |shares: &[WeightedBackend]| {
        shares
            .iter()
            .find_map(|share| backends.get(share.backend.as_str()).cloned())
    };
    let limits = snapshot.rate_limits.iter().filter_map(|limit| {
        let service = limit.service.as_ref();
        let service = service.filter(|it| !it.fail_open && !limit.report_only)?;
        Some((limit.name.as_str(), service.backend.as_str()))
    });
    let limits: BTreeMap<&str, &str> = limits.collect();
    let unasked = |route: &Route| {
        let auths = route.external_auth.iter().map(|auth| auth.backend.as_str());
        let limited = route.rate_limits.iter();
        let limited = limited.filter_map(|limit| limits.get(limit.as_str()).copied());
        let mut asked = auths.chain(limited);
        let why = asked.find_map(|backend| backends.get(backend))?;
        Some(format!("{why}; requests that it cannot check get 500"))
    };
    let lost = |piece: &Piece| {
        let culprit = culprits.get(piece)?;
        let (why, effect) = (why(culprits, piece), effect(piece, culprit));
        Some(format!("{why}; {effect}"))
    };
    for table in &snapshot.route_tables {
        for host in &table.virtual_hosts {
            let whole_host = Piece::VirtualHost {
                table: table.name.clone(),
                domain: host.domain.clone(),
            };
            let host_is_lost = culprits.contains_key(&whole_host);
            for route in &host.routes {
                let lost = lost(&Piece::Route(route.name.clone()))
                    .or_else(|| host_is_lost.then(|| why(culprits, &whole_host)));
                let share = match &route.action {
                    Some(Action::Forward(Forward { backends, .. })) => share_of(backends),
                    _ => None,
                };
                let lost = lost.or_else(|| unasked(route));
                record_route(routes, &route.name, lost, share);
            }
        }
    }
    for Listener { l4_routes, .. } in snapshot.ports.iter().flat_map(|port| &port.listeners) {
        for L4Route { name, backends, .. } in l4_routes {
            let lost = lost(&Piece::L4Route(name.clone()));
            record_route(routes, name, lost, share_of(backends));
        }
    }
}

fn not_open(
    affected: &mut Affected,
    snapshot: &Snapshot,
    socket: &UnboundSocket,
    bound: &impl Fn(&Port) -> u32,
) {
    let UnboundSocket {
        address,
        transport,
        envoy_words,
        owner,
        privileged,
        since,
        ..
    } = socket;
    let mut words = envoy_words.clone();
    if let Some(owner) = owner {
        // Writing to a String cannot fail.
        let _ = write!(words, "; the port is held by {owner}");
    }
    if let Some(privileged) = privileged {
        let _ = write!(words, "; {privileged}");
    }
    for port in &snapshot.ports {
        if port.transport() != *transport || bound(port) != u32::from(address.port()) {
            continue;
        }
        if port.http3 {
            // The listeners are still served over TCP.
            let is_same = |it: &&Port| it.transport() == Transport::Tcp && it.port == port.port;
            let tcp = snapshot.ports.iter().filter(is_same);
            let listeners = tcp.flat_map(|it| &it.listeners);
            let allows = |it: &&Listener| {
                let tls = it.tls.as_ref();
                it.protocol() == Protocol::Https && tls.is_some_and(TlsTermination::allows_http3)
            };
            let refused = listeners.filter(allows).map(|listener| Refused {
                object: listener.name.clone(),
                effect: format!("not served over HTTP/3 until {address} can be bound"),
                envoy_words: words.clone(),
                since: *since,
            });
            affected.refused.extend(refused);
            continue;
        }
        for listener in &port.listeners {
            affected.refused.push(Refused {
                object: listener.name.clone(),
                effect: format!("nothing listens on {address} until it can be bound"),
                envoy_words: words.clone(),
                since: *since,
            });
            let reason = format!("Envoy cannot listen on {address}: {words}");
            affected
                .listeners
                .entry(listener.name.clone())
                .and_modify(|before| *before = format!("{before}; {reason}"))
                .or_insert(reason);
        }
    }
}

fn record_route(
    routes: &mut BTreeMap<String, AffectedRoute>,
    name: &str,
    lost: Option<String>,
    share: Option<String>,
) {
    let Ok(provenance) = Provenance::parse(name) else {
        return;
    };
    let Some(rule) = provenance.rule() else {
        return;
    };
    let route = routes.entry(provenance.object().to_string()).or_default();
    if let Some(reason) = lost {
        route.rules.entry(rule).or_insert(reason);
        return;
    }
    route.works = true;
    if let Some(reason) = share {
        route.shares.entry(rule).or_insert(reason);
    }
}

/// Users know a virtual host by the name of its first route.
fn object(piece: &Piece, snapshot: &Snapshot) -> String {
    let Piece::VirtualHost { table, domain } = piece else {
        return piece.to_string();
    };
    snapshot
        .route_tables
        .iter()
        .filter(|t| t.name == *table)
        .flat_map(|t| &t.virtual_hosts)
        .filter(|host| host.domain == *domain)
        .find_map(|host| host.routes.first())
        .map_or_else(|| piece.to_string(), |route| route.name.clone())
}

fn effect(piece: &Piece, culprit: &Culprit) -> String {
    if let Some(key) = &culprit.put_back {
        return match Timestamp::from_second(key.not_after) {
            Ok(end) if key.not_after > 0 => {
                format!(
                    "the previously accepted key pair is used; its certificate expires at {end}"
                )
            }
            _ => "the previously accepted key pair is used".to_owned(),
        };
    }
    let effect = match piece {
        Piece::Route(_) if culprit.is_dropped() => "its requests go to later routes",
        Piece::VirtualHost { .. } if culprit.is_dropped() => {
            "Envoy does not know the domain, so less specific domains get its requests"
        }
        Piece::Route(_) | Piece::VirtualHost { .. } => "its requests get 500",
        Piece::Backend(_) | Piece::Endpoints(_) => "its share of requests is rejected",
        Piece::Key(_) | Piece::TrustBundle(_) => "everything that depends on it is excluded",
        Piece::L4Route(_) => "its connections are closed",
        Piece::Listener(_) => "it is not open",
    };
    effect.to_owned()
}
