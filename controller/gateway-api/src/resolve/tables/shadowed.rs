//! Matches that no request reaches, because others come first wherever they are.
//!
//! A match is looked at in every virtual host of every listener that it attaches to: only what is hidden in
//! all of them is worth telling. Who compares two resolutions has it noted host by host.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::virtual_hosts::Candidate;
use crate::resolve::context::Problems;
use crate::resolve::routes::Routes;
use crate::resolve::routes::matches::Conditions;
use crate::resolve::routes::precedence::Order;
use crate::world::ObjectKey;

/// A match: of which route, rule and match of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    route: usize,
    rule: usize,
    match_: usize,
}

impl Place {
    fn of(order: &Order) -> Self {
        let Order {
            hostname: _,
            rank: _,
            route,
            rule,
            match_,
        } = *order;
        Self {
            route,
            rule,
            match_,
        }
    }
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Shadowed {
    reached: Vec<Place>,
    /// With what comes first.
    hidden: BTreeMap<Place, Place>,
    by_host: Option<ByHost>,
}

/// What is hidden in each virtual host.
#[derive(Debug, Default)]
struct ByHost {
    /// How many hosts there were before this one.
    host: usize,
    /// In which host, what, and by what.
    hidden: Vec<(usize, Place, Place)>,
}

/// A match by the name of its route, its rule and its place there.
type Match = (ObjectKey, usize, usize);

/// In which virtual host of all, in the order in which they are built, what is hidden, and by what.
#[derive(Debug, PartialEq)]
pub(crate) struct Hidden(Vec<(usize, Match, Match)>);

impl Shadowed {
    /// Such that notes what is hidden in each virtual host.
    pub(crate) fn by_host() -> Self {
        Self {
            by_host: Some(ByHost::default()),
            ..Self::default()
        }
    }

    /// What follows is of the next virtual host.
    fn next_host(&mut self) {
        if let Some(ByHost { host, .. }) = &mut self.by_host {
            *host += 1;
        }
    }

    /// Requests can reach the match.
    fn reached(&mut self, place: Place) {
        self.reached.push(place);
    }

    /// In one virtual host, all that the match asks for goes to `winner`.
    fn hidden(&mut self, place: Place, winner: Place) {
        self.hidden.entry(place).or_insert(winner);
        if let Some(ByHost { host, hidden }) = &mut self.by_host {
            hidden.push((*host, place, winner));
        }
    }

    /// What was noted of each virtual host.
    pub(crate) fn take_hidden(&mut self, routes: &Routes) -> Hidden {
        let of = |place: Place| {
            let route = routes.get(place.route)?;
            Some((route.object.clone(), place.rule, place.match_))
        };
        let noted = self.by_host.take().unwrap_or_default().hidden;
        let named = noted
            .into_iter()
            .filter_map(|(host, place, winner)| Some((host, of(place)?, of(winner)?)));
        Hidden(named.collect())
    }

    /// Tells the author of each route of the first of its matches that is never reached.
    pub(crate) fn tell(self, routes: &Routes, problems: &mut Problems) {
        let Self {
            reached,
            hidden,
            by_host: _,
        } = self;
        if hidden.is_empty() {
            return;
        }
        let reached: HashSet<Place> = reached.into_iter().collect();
        let mut by_route: BTreeMap<usize, Vec<(Place, Place)>> = BTreeMap::new();
        for (place, winner) in hidden {
            if !reached.contains(&place) {
                by_route
                    .entry(place.route)
                    .or_default()
                    .push((place, winner));
            }
        }
        for (route, lost) in by_route {
            let (Some(loser), Some((first, winner))) = (routes.get(route), lost.first()) else {
                continue;
            };
            let Some(before) = routes.get(winner.route) else {
                continue;
            };
            let Place { rule, match_, .. } = winner;
            let who = if winner.route == route {
                format!("rules[{rule}].matches[{match_}] of this route")
            } else if before.object.name.namespace == loser.object.name.namespace {
                format!("rules[{rule}].matches[{match_}] of {}", before.object)
            } else {
                // What others have is not for everybody.
                "a route of another namespace".to_owned()
            };
            let Place { rule, match_, .. } = first;
            let others = match lost.len() {
                1 => String::new(),
                count => format!("; nor are {} other matches of the route", count - 1),
            };
            problems.add(
                loser.object.clone(),
                format!(
                    "rules[{rule}].matches[{match_}] is never reached: its requests go to {who}, which comes first{others}"
                ),
            );
        }
    }
}

/// What is left of sorted candidates when those are out that an earlier one hides completely: equal matches,
/// all of GRPCRoutes after one that takes every gRPC request, and all after one that takes every request.
pub(crate) fn reachable<'a>(
    candidates: Vec<(Order, Candidate<'a>)>,
    shadowed: &mut Shadowed,
) -> Vec<(Order, Candidate<'a>)> {
    let mut seen: HashMap<&Conditions, Place> = HashMap::new();
    let mut takes_all: Option<Place> = None;
    let mut takes_all_grpc: Option<Place> = None;
    let several = candidates.len() > 1;
    shadowed.next_host();
    let mut kept = Vec::with_capacity(candidates.len());
    for (order, candidate) in candidates {
        let place = Place::of(&order);
        let grpc = candidate.conditions.grpc.is_some();
        let before = takes_all
            .or(takes_all_grpc.filter(|_| grpc))
            .or_else(|| seen.get(candidate.conditions).copied());
        if let Some(winner) = before {
            shadowed.hidden(place, winner);
            continue;
        }
        if several {
            seen.insert(candidate.conditions, place);
        }
        if candidate.conditions.is_all() {
            if grpc {
                takes_all_grpc = Some(place);
            } else {
                takes_all = Some(place);
            }
        }
        shadowed.reached(place);
        kept.push((order, candidate));
    }
    kept
}
