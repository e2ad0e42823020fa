//! Tries routes in Envoy's order until one handles the request.

use sesame_proto::expressions::{self as costs, MAX_PER_VIRTUAL_HOST};
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{RequestFilters, Route, Snapshot, VirtualHost};

use super::backends;
use super::bounds::CandidateList;
use super::compared::Compared;
use super::describe;
use super::expressions::Expressions;
use super::matching;
use super::outcome::{CandidateVerdict, ExplainedCandidate};
use super::precedence;

#[derive(Clone, Copy)]
pub(super) struct Winner<'h> {
    pub(super) route: &'h Route,
    /// True for a CORS preflight of a request that the route would handle.
    pub(super) preflight: bool,
}

pub(super) struct Tried<'h> {
    pub(super) candidates: Vec<ExplainedCandidate>,
    pub(super) omitted: usize,
    pub(super) winner: Option<Winner<'h>>,
}

/// Also compares the routes after the route that handles the request.
pub(super) fn try_all<'h>(
    snapshot: &Snapshot,
    host: &'h VirtualHost,
    request: &Compared,
    expressions: &mut Expressions,
) -> Tried<'h> {
    let mut winner: Option<Winner<'h>> = None;
    let mut candidates = CandidateList::default();
    let mut cost = 0_u64;
    let translated = request.grpc_web.then(|| request.translated());
    for route in &host.routes {
        let filters = filters(snapshot, host, Some(route));
        let translated = translated.as_ref();
        let translated = translated.filter(|_| filters.is_some_and(|it| it.grpc_web));
        let request = translated.unwrap_or(request);
        let (taken, reasons) = match left_out(route, &mut cost) {
            Some(reason) => (None, vec![reason]),
            None => compare(snapshot, route, request, expressions),
        };
        let (verdict, reasons) = match (taken, &winner) {
            (None, _) => (CandidateVerdict::NoMatch, reasons),
            (Some(preflight), None) => {
                winner = Some(Winner { route, preflight });
                (CandidateVerdict::Taken, Vec::new())
            }
            (Some(_), Some(winner)) => {
                let why = precedence::why_first(winner.route, route);
                (CandidateVerdict::TooLate, vec![why])
            }
        };
        let path_matches = matching::of_path(route, request, expressions).is_none();
        candidates.push(verdict, path_matches, || ExplainedCandidate {
            route: route.name.clone(),
            condition: describe::condition(route),
            verdict,
            path_matches,
            reasons,
        });
    }
    let (candidates, omitted) = candidates.finish();
    Tried {
        candidates,
        omitted,
        winner,
    }
}

/// Returns the filters that apply to the requests of `route`.
pub(super) fn filters<'s>(
    snapshot: &'s Snapshot,
    host: &'s VirtualHost,
    route: Option<&'s Route>,
) -> Option<&'s RequestFilters> {
    route
        .and_then(|it| it.filters.as_deref())
        .or(host.filters.as_ref())
        .or(snapshot.filters.as_deref())
}

/// Returns false if Envoy itself responds.
pub(super) fn forwards(snapshot: &Snapshot, route: &Route) -> bool {
    let Some(Action::Forward(forward)) = &route.action else {
        return false;
    };
    let mut shares = forward.backends.iter().filter(|it| it.weight > 0);
    shares.any(|it| !backends::is_refused(snapshot, it))
}

/// Returns the reason if rendering omits the route; otherwise adds the route's cost to `cost`.
pub(super) fn left_out(route: &Route, cost: &mut u64) -> Option<String> {
    if let Some(reason) = matching::left_out(route) {
        return Some(reason);
    }
    let with_this = cost.saturating_add(costs::of_route(route));
    if with_this > MAX_PER_VIRTUAL_HOST {
        return Some(
            "it is omitted: together with earlier ones, its regular expressions exceed the limit"
                .to_owned(),
        );
    }
    *cost = with_this;
    None
}

/// The first value is `None` if the route does not match, and otherwise true for a CORS preflight.
/// The second value lists mismatches.
pub(super) fn compare(
    snapshot: &Snapshot,
    route: &Route,
    request: &Compared,
    expressions: &mut Expressions,
) -> (Option<bool>, Vec<String>) {
    // Only CORS depends on it, and it searches all backends.
    let forwards = route.cors.is_none() || forwards(snapshot, route);
    let preflight = matching::is_preflight(route, forwards, request, expressions);
    // If Envoy itself responds, it checks for a preflight before the other conditions; otherwise
    // after them.
    if preflight && !forwards {
        return (Some(true), Vec::new());
    }
    let reasons = matching::mismatches(route, request, expressions);
    if reasons.is_empty() {
        (Some(false), reasons)
    } else {
        (preflight.then_some(true), reasons)
    }
}
