//! Direct responses in place of protected routes that cannot be rendered.
//!
//! Never match fewer requests than the original route: they would fall through to another route,
//! which may be unprotected.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::route::v3::{Route as EnvoyRoute, RouteMatch};
use sesame_proto::expressions::fixed_path;
use sesame_proto::refusal;
use sesame_proto::schema::path_match::Kind as PathKind;
use sesame_proto::schema::string_match::Kind as StringKind;
use sesame_proto::schema::{PathMatch, Route, StringMatch, route::Action};

use super::answers::answer;
use super::matches;
use super::routes::RenderedRoute;

pub(crate) fn consequence(route: &Route) -> &'static str {
    if protects(route) {
        "requests that it matches, or would match without its unusable matches, get 500"
    } else {
        "the route is left out"
    }
}

/// Returns `None` if `route` protects nothing. Other routes may then serve its requests.
pub(crate) fn instead_of(route: &Route) -> Option<RenderedRoute> {
    protects(route).then(|| refused(route))
}

pub(crate) fn refused(route: &Route) -> RenderedRoute {
    RenderedRoute {
        route: EnvoyRoute {
            name: route.name.clone(),
            r#match: Some(widened(route)),
            action: Some(answer(refusal::HTTP)),
            ..Default::default()
        },
        filters: BTreeMap::new(),
    }
}

fn protects(route: &Route) -> bool {
    let answers = matches!(route.action, Some(Action::DirectResponse(_)) | None);
    answers || !route.external_auth.is_empty() || route.filters.is_some()
}

fn widened(route: &Route) -> RouteMatch {
    let part = |path: Option<&PathMatch>, method: &str, headers: &[_], query: &[_]| {
        let grpc = matches::MatchedProtocol::new(route.grpc, true);
        matches::render(path, method, headers, query, grpc).ok()
    };
    let fixed = match route.path.as_ref().and_then(|path| path.kind.as_ref()) {
        Some(PathKind::Regex(pattern)) => Some(PathMatch {
            kind: Some(PathKind::Prefix(fixed_path(pattern).to_owned())),
        }),
        _ => route.path.clone(),
    };
    let mut widened = part(fixed.as_ref(), &route.method, &[], &[])
        .or_else(|| part(None, &route.method, &[], &[]))
        .unwrap_or_default();
    let is_exact = |it: &&StringMatch| matches!(it.kind, Some(StringKind::Exact(_)));
    for header in route.headers.iter().filter(is_exact) {
        let alone = part(None, "", std::slice::from_ref(header), &[]);
        widened
            .headers
            .extend(alone.into_iter().flat_map(|it| it.headers));
    }
    for query in route.query_params.iter().filter(is_exact) {
        let alone = part(None, "", &[], std::slice::from_ref(query));
        let alone = alone.into_iter().flat_map(|it| it.query_parameters);
        widened.query_parameters.extend(alone);
    }
    widened
}
