//! Finds matches that other matches hide in every virtual host.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::candidates::MatchCandidate;
use crate::context::Problems;
use crate::routes::matches::RouteMatch;
use crate::routes::precedence::{MatchPlace, Order};
use crate::routes::{CheckedRoute, Routes};
use sesame_kinds::world::{Kind, ObjectKey};

/// Reached and hidden matches of all virtual hosts.
#[derive(Debug, Default)]
pub(crate) struct Shadowed {
    reached: Vec<MatchPlace>,
    /// For each hidden match, the first match found to hide it in any virtual host.
    hidden: BTreeMap<MatchPlace, HiddenBy>,
    by_host: Option<ByHost>,
}

#[derive(Clone, Copy, Debug)]
struct HiddenBy {
    place: MatchPlace,
    first: First,
}

/// A route's first unreachable match. Matches that another object hides come first.
#[derive(Debug)]
pub(crate) struct Unreached {
    pub(crate) message: String,
    /// True if an equal match of an HTTPProxy receives the requests.
    pub(crate) duplicate: bool,
    /// True if another object hides the match.
    pub(crate) by_other: bool,
    /// True if no match of the route is reachable.
    pub(crate) whole: bool,
}

/// Why the hiding match takes precedence.
#[derive(Clone, Copy, Debug)]
enum First {
    /// The hiding match accepts all requests or all gRPC calls, and ranks higher.
    TakesAll,
    /// The matches are equal, but the hiding match has a more specific hostname.
    Hostname,
    /// Matches and hostnames are equal, but the hiding route, rule or match comes first.
    Place,
}

#[derive(Debug, Default)]
struct ByHost {
    /// Number of the current virtual host.
    host: usize,
    /// Virtual host, hidden match, hiding match.
    hidden: Vec<(usize, MatchPlace, MatchPlace)>,
}

/// Route, rule index and match index.
pub(crate) type Match = (ObjectKey, usize, usize);

/// Virtual host in build order, hidden match, hiding match.
pub(crate) type Hidden = Vec<(usize, Match, Match)>;

impl Shadowed {
    /// Also records hidden matches per virtual host.
    pub(crate) fn by_host() -> Self {
        Self {
            by_host: Some(ByHost::default()),
            ..Self::default()
        }
    }

    fn hidden(&mut self, place: MatchPlace, winner: HiddenBy) {
        self.hidden.entry(place).or_insert(winner);
        if let Some(ByHost { host, hidden }) = &mut self.by_host {
            hidden.push((*host, place, winner.place));
        }
    }

    /// Returns nothing unless created with [`Self::by_host`].
    pub(crate) fn take_hidden(&mut self, routes: &Routes<'_>) -> Hidden {
        let of = |place: MatchPlace| {
            let route = routes.get(place.route)?;
            Some((route.object.clone(), place.rule, place.match_))
        };
        let noted = self.by_host.take().unwrap_or_default().hidden;
        noted
            .into_iter()
            .filter_map(|(host, place, winner)| Some((host, of(place)?, of(winner)?)))
            .collect()
    }

    /// Reports each route's first unreachable match, and returns them by route index.
    pub(crate) fn report(
        self,
        routes: &Routes<'_>,
        problems: &mut Problems,
    ) -> BTreeMap<usize, Unreached> {
        let Self {
            reached,
            hidden,
            by_host: _,
        } = self;
        let mut messages = BTreeMap::new();
        if hidden.is_empty() {
            return messages;
        }
        let reached: HashSet<MatchPlace> = reached.into_iter().collect();
        let reached_routes: HashSet<usize> = reached.iter().map(|place| place.route).collect();
        let mut by_route: BTreeMap<usize, Vec<(MatchPlace, HiddenBy)>> = BTreeMap::new();
        for (place, winner) in hidden {
            if !reached.contains(&place) {
                by_route
                    .entry(place.route)
                    .or_default()
                    .push((place, winner));
            }
        }
        for (place, lost) in by_route {
            let Some(loser) = routes.get(place) else {
                continue;
            };
            let is_other = |(_, winner): &&(MatchPlace, HiddenBy)| {
                let before = routes.get(winner.place.route);
                before.is_some_and(|before| before.object != loser.object)
            };
            let by_other = lost.iter().find(is_other);
            let Some((first, winner)) = by_other.or(lost.first()) else {
                continue;
            };
            let Some(before) = routes.get(winner.place.route) else {
                continue;
            };
            let message = message((loser, *first), (before, *winner), lost.len());
            let MatchPlace { rule, match_, .. } = winner.place;
            let hidden_by = format!("{}/rules/{rule}/matches/{match_}", before.provenance);
            problems.add_hidden(loser.object.clone(), message.clone(), hidden_by);
            let is_equal = matches!(winner.first, First::Place);
            let is_proxy = |route: &CheckedRoute<'_>| route.object.kind == Kind::HttpProxy;
            let duplicate = is_equal && is_proxy(before) && is_proxy(loser);
            let unreached = Unreached {
                message,
                duplicate,
                by_other: by_other.is_some(),
                whole: !reached_routes.contains(&place),
            };
            messages.insert(place, unreached);
        }
        messages
    }
}

/// `count` is the number of the losing route's unreachable matches.
fn message(
    (loser, lost): (&CheckedRoute<'_>, MatchPlace),
    (before, winner): (&CheckedRoute<'_>, HiddenBy),
    count: usize,
) -> String {
    let lost = at(loser, lost);
    let who = named(before, loser, winner);
    let why = why_first(before, loser, winner);
    let others = match count {
        1 => String::new(),
        count => format!("; other unreachable matches of the route: {}", count - 1),
    };
    format!(
        "{lost} is never reached: its requests go to {who}, which comes first because {why}{others}"
    )
}

/// Never names a route in another namespace.
fn named(before: &CheckedRoute<'_>, loser: &CheckedRoute<'_>, winner: HiddenBy) -> String {
    let winner = at(before, winner.place);
    if before.object == loser.object {
        let what = match before.object.kind {
            Kind::Ingress => "Ingress",
            Kind::HttpProxy => "HTTPProxy",
            _ => "route",
        };
        format!("{winner} of this {what}")
    } else if before.object.name.namespace == loser.object.name.namespace {
        format!("{winner} of {}", before.object)
    } else {
        "a route in another namespace".to_owned()
    }
}

/// Returns the field path of a match, or of its route for an HTTPProxy.
fn at(route: &CheckedRoute<'_>, place: MatchPlace) -> String {
    let MatchPlace {
        route: _,
        rule,
        match_,
    } = place;
    match route.object.kind {
        Kind::Ingress => format!("rules[{rule}].http.paths[{match_}]"),
        Kind::HttpProxy => format!("routes[{rule}]"),
        _ => format!("rules[{rule}].matches[{match_}]"),
    }
}

fn is_layered(route: &CheckedRoute<'_>) -> bool {
    matches!(route.object.kind, Kind::HttpProxy | Kind::Ingress)
}

fn why_first(
    before: &CheckedRoute<'_>,
    loser: &CheckedRoute<'_>,
    winner: HiddenBy,
) -> &'static str {
    match winner.first {
        First::TakesAll => "it matches all requests",
        First::Hostname => "its hostname is more specific",
        First::Place
            if before.object.kind == Kind::HttpProxy && loser.object.kind == Kind::HttpProxy =>
        {
            "the last of equal routes wins, and an including HTTPProxy precedes its includes"
        }
        First::Place if before.object == loser.object => "it is listed first",
        First::Place if loser.object.kind != before.object.kind && is_layered(loser) => {
            "routes of the Gateway API precede HTTPProxies, which precede Ingresses"
        }
        First::Place if before.metadata.creation_timestamp == loser.metadata.creation_timestamp => {
            "both have the same age, and its name sorts first"
        }
        First::Place => "it is older",
    }
}

/// Removes hidden matches. A match for all gRPC calls hides later gRPC matches only.
pub(crate) fn reachable<'a>(
    candidates: Vec<(Order<'a>, MatchCandidate<'a>)>,
    shadowed: &mut Shadowed,
) -> Vec<(Order<'a>, MatchCandidate<'a>)> {
    let mut seen: HashMap<&RouteMatch, Order<'_>> = HashMap::new();
    let mut takes_all: Option<MatchPlace> = None;
    let mut takes_all_grpc: Option<MatchPlace> = None;
    let several = candidates.len() > 1;
    if let Some(ByHost { host, .. }) = &mut shadowed.by_host {
        *host += 1;
    }
    let mut kept = Vec::with_capacity(candidates.len());
    for (order, candidate) in candidates {
        let place = order.place;
        let grpc = candidate.route_match.grpc.is_some();
        let same = seen.get(candidate.route_match).map(|before| HiddenBy {
            place: before.place,
            first: if before.hostname == order.hostname {
                First::Place
            } else {
                First::Hostname
            },
        });
        let before = same.or_else(|| {
            let place = takes_all.or(takes_all_grpc.filter(|_| grpc))?;
            let first = First::TakesAll;
            Some(HiddenBy { place, first })
        });
        if let Some(winner) = before {
            shadowed.hidden(place, winner);
            continue;
        }
        if several {
            seen.insert(candidate.route_match, order);
        }
        if candidate.route_match.is_all() {
            if grpc {
                takes_all_grpc = Some(place);
            } else {
                takes_all = Some(place);
            }
        }
        shadowed.reached.push(place);
        kept.push((order, candidate));
    }
    kept
}
