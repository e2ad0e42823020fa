//! What a quarantine means for the objects: whose conditions say so, and in which words. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::{Forward, L4Route, Listener, Snapshot, WeightedBackend, route::Action};

use super::exclude::Gone;
use super::memory::{Culprit, Culprits};
use super::piece::Piece;
use super::sockets::{Unbound, UnboundSocket};

/// What is left out, by whom it concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// The culprits themselves, each with Envoy's words.
    pub refused: Vec<Refused>,
    /// Listeners that are not open, by the snapshot's name, with the reason.
    pub listeners: BTreeMap<String, String>,
    /// By route: `HTTPRoute/namespace/name`.
    pub routes: BTreeMap<String, AffectedRoute>,
}

/// What is wrong with a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedRoute {
    /// Rules of which a match is left out, with the reason.
    pub rules: BTreeMap<usize, String>,
    /// Rules of which a backend's share is refused, with the reason.
    pub shares: BTreeMap<usize, String>,
    /// Whether any match of any rule works.
    pub works: bool,
}

/// A culprit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// Its name in the snapshot: provenance.
    pub object: String,
    /// What happens instead.
    pub effect: String,
    /// Envoy's reason.
    pub envoy_words: String,
    /// When it was found.
    pub since: Timestamp,
}

/// Says whom it concerns. `bound` is the port that an outside port is bound to.
pub fn affected(
    snapshot: &Snapshot,
    culprits: &Culprits,
    unbound: &Unbound,
    bound: impl Fn(u32) -> u32,
) -> Affected {
    let mut affected = Affected::default();
    let gone = Gone::new(snapshot, culprits);
    for (piece, culprit) in culprits {
        affected.refused.push(Refused {
            object: object(piece, snapshot),
            effect: effect(piece, culprit).to_owned(),
            envoy_words: culprit.envoy_words.clone(),
            since: culprit.since,
        });
    }
    let why = |piece: &Piece| {
        let words = culprits.get(piece).map_or("", |c| c.envoy_words.as_str());
        format!("Envoy refuses {piece}: {words}")
    };
    for listener in snapshot.ports.iter().flat_map(|port| &port.listeners) {
        for cause in gone.causes_of_listener(listener) {
            affected
                .listeners
                .entry(listener.name.clone())
                .or_insert_with(|| why(&cause));
        }
    }
    let mut backends: BTreeMap<&str, String> = BTreeMap::new();
    for backend in &snapshot.backends {
        if let Some(cause) = gone.causes_of_backend(backend).next() {
            backends.insert(
                &backend.name,
                format!("{}; its share is refused", why(&cause)),
            );
        }
    }
    let share_of = |shares: &[WeightedBackend]| {
        shares
            .iter()
            .find_map(|share| backends.get(share.backend.as_str()).cloned())
    };
    for table in &snapshot.route_tables {
        for host in &table.virtual_hosts {
            let whole_host = Piece::VirtualHost {
                table: table.name.clone(),
                domain: host.domain.clone(),
            };
            for route in &host.routes {
                let piece = Piece::Route(route.name.clone());
                let lost = if let Some(culprit) = culprits.get(&piece) {
                    Some(format!("{}; {}", why(&piece), effect(&piece, culprit)))
                } else {
                    culprits.contains_key(&whole_host).then(|| why(&whole_host))
                };
                let share = match &route.action {
                    Some(Action::Forward(Forward { backends, .. })) => share_of(backends),
                    _ => None,
                };
                note(&mut affected.routes, &route.name, lost, share);
            }
        }
    }
    for Listener { l4_routes, .. } in snapshot.ports.iter().flat_map(|port| &port.listeners) {
        for L4Route { name, backends, .. } in l4_routes {
            let piece = Piece::L4Route(name.clone());
            let lost = culprits
                .get(&piece)
                .map(|culprit| format!("{}; {}", why(&piece), effect(&piece, culprit)));
            note(&mut affected.routes, name, lost, share_of(backends));
        }
    }
    affected
        .routes
        .retain(|_, route| !(route.rules.is_empty() && route.shares.is_empty()));
    for socket in unbound.iter() {
        not_open(&mut affected, snapshot, socket, &bound);
    }
    affected.refused.sort();
    affected
}

fn not_open(
    affected: &mut Affected,
    snapshot: &Snapshot,
    socket: &UnboundSocket,
    bound: &impl Fn(u32) -> u32,
) {
    let UnboundSocket {
        address,
        transport,
        envoy_words,
        holder,
        low,
        since,
        ..
    } = socket;
    let mut words = envoy_words.clone();
    if let Some(holder) = holder {
        // Writing to a String cannot fail.
        let _ = write!(words, "; the port is held by {holder}");
    }
    if let Some(low) = low {
        let _ = write!(words, "; {low}");
    }
    for port in &snapshot.ports {
        if port.transport() != *transport || bound(port.port) != u32::from(address.port()) {
            continue;
        }
        for listener in &port.listeners {
            affected.refused.push(Refused {
                object: listener.name.clone(),
                effect: format!("{address} is not listened on until it can be"),
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

/// Takes note of one match of a rule; the first reason of each kind is kept.
fn note(
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

/// Whose it is: a virtual host's is that of its first route.
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

fn effect(piece: &Piece, culprit: &Culprit) -> &'static str {
    match piece {
        Piece::Route(_) if culprit.dropped => "its requests fall to the routes after it",
        Piece::Route(_) => "its requests are answered with 500",
        Piece::VirtualHost { .. } => "its requests are answered with 404",
        Piece::Backend(_) | Piece::Endpoints(_) => "its share of requests is refused",
        Piece::Key(_) | Piece::TrustBundle(_) => "what needs it is left out",
        Piece::L4Route(_) => "its connections are closed",
        Piece::Listener(_) => "it is not open",
    }
}
