//! Candidates for the routes of a virtual host, and the cost limit for their expressions.

use std::collections::{BTreeMap, HashSet};

use sesame_proto::expressions::{MAX_PER_VIRTUAL_HOST, fixed_path};
use sesame_proto::schema::path_match::Kind as PathKind;
use sesame_proto::schema::route::Action as RouteAction;
use sesame_proto::schema::string_match::Kind as StringKind;
use sesame_proto::{refusal, schema};

use super::placed::PlacedListener;
use crate::routes::CheckedRoute;
use crate::routes::matches::RouteMatch;
use crate::routes::precedence::{MatchPlace, Order};
use crate::routes::rules::{Action, CheckedRule};

/// A match that may become a route of one virtual host.
#[derive(Clone, Copy)]
pub(crate) struct MatchCandidate<'a> {
    pub(super) route: &'a CheckedRoute<'a>,
    pub(super) rule: &'a CheckedRule,
    pub(crate) route_match: &'a RouteMatch,
    /// True if the route's expressions exceed the limit, but its requests must not reach other
    /// routes. Requests that meet the other conditions get an error.
    pub(super) refuses: bool,
}

impl MatchCandidate<'_> {
    pub(super) fn to_schema(
        self,
        place: MatchPlace,
        listener: &PlacedListener<'_>,
    ) -> schema::Route {
        let match_ = place.match_;
        let RouteMatch {
            path,
            method,
            headers,
            query_params,
            grpc,
            one_label: _,
            ranked_length: _,
            instructions: _,
        } = self.route_match;
        let CheckedRule {
            index,
            first: _,
            matches: _,
            action: _,
            request_headers,
            response_headers,
            cors,
            external_auth,
            timeouts_decided: _,
            // Already included in `limits_on`.
            rate_limits: _,
            filters,
            protects: _,
        } = self.rule;
        let name = format!("{}/rules/{index}/matches/{match_}", self.route.provenance);
        if self.refuses {
            return self.refusing(name);
        }
        let traffic = &listener.listener.traffic;
        let limits = self.rule.limits_on(traffic).into_iter();
        let reached_by = listener.reached_by(place.route);
        let changed = response_headers.as_deref();
        let route = self.route.provenance.as_str();
        let grpc_only = grpc.is_some();
        let reserved = traffic
            .reserved_headers
            .get(self.route.object.name.namespace.as_str());
        let filters = filters.as_deref();
        let asked = traffic.filters.external_auths(filters, route);
        let asked = asked.into_iter().chain(external_auth.as_deref().cloned());
        let filters = (traffic.filters).of_route(filters, changed, grpc_only, route, reserved);
        schema::Route {
            name,
            path: Some(schema::PathMatch {
                kind: Some(path.clone()),
            }),
            method: method.clone(),
            headers: headers.clone(),
            query_params: query_params.clone(),
            action: Some(self.action(place, listener)),
            request_headers: request_headers.clone(),
            response_headers: response_headers.clone(),
            cors: cors.clone(),
            grpc: grpc.is_some(),
            external_auth: asked.map(|auth| reached_by.external_auth(auth)).collect(),
            rate_limits: limits.map(|limit| limit.name.clone()).collect(),
            filters,
        }
    }

    fn action(self, place: MatchPlace, listener: &PlacedListener<'_>) -> RouteAction {
        let traffic = &listener.listener.traffic;
        match &self.rule.action {
            _ if traffic.refuses => {
                RouteAction::DirectResponse(schema::DirectResponse::new(refusal::HTTP))
            }
            Action::Forward(forward) => {
                let reached_by = listener.reached_by(place.route);
                let mut forward = reached_by.forward(forward.clone());
                traffic.tune(&mut forward, self.rule.timeouts_decided);
                RouteAction::Forward(forward)
            }
            Action::Redirect(redirect) => {
                RouteAction::Redirect(redirect.on(listener.scheme(), listener.port))
            }
            Action::Respond(response) => RouteAction::DirectResponse(response.clone()),
        }
    }

    /// Ignores regular expressions, so the result may match more requests.
    fn refusing(self, name: String) -> schema::Route {
        let RouteMatch {
            path,
            method,
            headers,
            query_params,
            grpc,
            one_label: _,
            ranked_length: _,
            instructions: _,
        } = self.route_match;
        let path = match path {
            PathKind::Regex(pattern) => PathKind::Prefix(fixed_path(pattern).to_owned()),
            path => path.clone(),
        };
        let exact = |values: &[schema::StringMatch]| {
            let is_exact =
                |it: &&schema::StringMatch| matches!(it.kind, Some(StringKind::Exact(_)));
            values.iter().filter(is_exact).cloned().collect()
        };
        schema::Route {
            name,
            path: Some(schema::PathMatch { kind: Some(path) }),
            method: method.clone(),
            headers: exact(headers),
            query_params: exact(query_params),
            action: Some(RouteAction::DirectResponse(schema::DirectResponse::new(
                refusal::HTTP,
            ))),
            grpc: grpc.is_some(),
            ..schema::Route::default()
        }
    }
}

/// Returns the routes over the limit, each with its cost and the total cost of the routes within
/// the limit. Older routes take precedence. A route is dropped as a whole, because its remaining
/// matches would behave differently.
pub(super) fn unaffordable(
    candidates: &[(Order<'_>, MatchCandidate<'_>)],
) -> BTreeMap<usize, (u64, u64)> {
    let mut costs: BTreeMap<usize, u64> = BTreeMap::new();
    // Count each match once, even if several of its route's hostnames cover the domain.
    let mut seen: HashSet<MatchPlace> = HashSet::new();
    for (order, candidate) in candidates {
        let (place, instructions) = (order.place, candidate.route_match.instructions);
        if instructions > 0 && seen.insert(place) {
            let cost = candidate.rule.evaluations().saturating_mul(instructions);
            let route_cost = costs.entry(place.route).or_default();
            *route_cost = route_cost.saturating_add(cost);
        }
    }
    let mut total = 0_u64;
    costs.retain(|_, cost| {
        let room = total.saturating_add(*cost) <= MAX_PER_VIRTUAL_HOST;
        if room {
            total = total.saturating_add(*cost);
        }
        !room
    });
    costs
        .into_iter()
        .map(|(route, cost)| (route, (cost, total)))
        .collect()
}
