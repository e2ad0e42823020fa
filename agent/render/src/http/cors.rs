//! CORS: cross-origin requests and their preflights.
//!
//! Envoy's CORS filter changes only responses from backends. For Envoy's own responses, the route
//! must add the headers, because browsers also expect them on redirects and errors.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::{
    HeaderValueOption, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::config::route::v3::{
    Route as EnvoyRoute, RouteAction, RouteMatch, route,
    route_action::{ClusterNotFoundResponseCode, ClusterSpecifier},
};
use envoy_types::pb::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::expressions::{self, MAX_INSTRUCTIONS, MAX_PER_ORIGINS};
use sesame_proto::schema::{Cors, CorsOrigin, cors_origin};

use super::paths::quote;
use super::routes::RenderedRoute;
use super::{headers, matches};
use crate::l4::weights::REFUSED_CLUSTER;
use crate::rendered::RenderProblems;
use crate::wrappers;

pub(crate) const FILTER: &str = "envoy.filters.http.cors";

pub(crate) fn idle() -> Any {
    pack_any(CorsPolicy::default())
}

pub(crate) fn render(object: &str, cors: &Cors, problems: &mut RenderProblems) -> Any {
    let Cors {
        allow_origins,
        allow_credentials,
        allow_methods,
        allow_headers,
        expose_headers,
        max_age_seconds,
        allow_private_network,
        ignores_matched_headers: _,
    } = cors;
    let origins = usable(object, allow_origins, problems)
        .into_iter()
        .map(|origin| match origin {
            cors_origin::Kind::Exact(origin) => wrappers::exact(origin),
            cors_origin::Kind::Regex(origin) => wrappers::matching(origin),
        })
        .collect();
    let mut list = |field: &str, values: &[String]| joined(object, field, values, problems);
    pack_any(CorsPolicy {
        allow_origin_string_match: origins,
        allow_methods: list("allow_methods", allow_methods),
        allow_headers: list("allow_headers", allow_headers),
        // In the other lists, Envoy replaces `*` with the requested values, even with credentials.
        expose_headers: list(
            "expose_headers",
            exposed(expose_headers, *allow_credentials),
        ),
        max_age: max_age_seconds.map_or_else(String::new, |seconds| seconds.to_string()),
        allow_credentials: wrappers::boolean(true).filter(|_| *allow_credentials),
        allow_private_network_access: wrappers::boolean(true).filter(|_| *allow_private_network),
        // Preflights from other origins must not reach the backend.
        forward_not_matching_preflights: wrappers::boolean(false),
        ..Default::default()
    })
}

/// Makes caches distinguish origins. Adds nothing if the backend already sends `Vary`.
pub(crate) fn vary() -> HeaderValueOption {
    // Envoy omits a header whose value is empty.
    let value = "%CEL('vary' in response.headers && response.headers['vary'].matches('(?i)(^|[, ])(origin|[*])($|[, ])') ? '' : 'Origin')%";
    let action = HeaderAppendAction::AppendIfExistsOrAdd;
    wrappers::header("vary", value.to_owned(), action)
}

/// Omits and reports origins that cost too much, because the snapshot is not trusted to limit the
/// cost. For Envoy's own responses, a single expression contains all origins.
fn usable<'c>(
    object: &str,
    origins: &'c [CorsOrigin],
    problems: &mut RenderProblems,
) -> Vec<&'c cors_origin::Kind> {
    let mut usable = Vec::with_capacity(origins.len());
    let mut costly = 0_u64;
    for (i, origin) in origins.iter().enumerate() {
        let Some(kind) = &origin.kind else {
            continue;
        };
        let until_here = origins.get(..=i).map_or(u64::MAX, expressions::of_origins);
        if is_costly(kind) {
            costly = costly.saturating_add(expressions::of_origins(std::slice::from_ref(origin)));
        }
        if costly <= MAX_INSTRUCTIONS && until_here <= MAX_PER_ORIGINS {
            usable.push(kind);
        } else {
            problems.add(
                object,
                format!(
                    "CORS allow_origins[{i}]: at most {MAX_PER_ORIGINS} instructions are allowed for all origins, and {MAX_INSTRUCTIONS} for expressions with groups or several repetitions; it is left out"
                ),
            );
        }
    }
    usable
}

/// Returns true if RE2 may be unable to cache all states of an origin's expression.
fn is_costly(origin: &cors_origin::Kind) -> bool {
    matches!(origin, cors_origin::Kind::Regex(pattern) if !expressions::is_of_origins(pattern))
}

/// With credentials, `*` is omitted: browsers take it literally, and Gateway API forbids it.
fn exposed(expose_headers: &[String], allow_credentials: bool) -> &[String] {
    if allow_credentials && expose_headers.iter().any(|name| name == "*") {
        &[]
    } else {
        expose_headers
    }
}

fn joined(object: &str, field: &str, values: &[String], problems: &mut RenderProblems) -> String {
    let mut usable = |value: &&String| {
        let checked = headers::check_value(value).map_err(|why| format!("CORS {field}: {why}"));
        problems.value(object, checked, "it is left out").is_some()
    };
    let values = values.iter().filter(|value| usable(value));
    values.map(String::as_str).collect::<Vec<_>>().join(",")
}

/// Responds to preflights for a route that does not forward requests. Needs no backend, because the
/// CORS filter responds first.
pub(crate) fn preflight_route(
    name: &str,
    route_match: &RouteMatch,
    method: &str,
    cors: &Cors,
    config: Any,
) -> RenderedRoute {
    RenderedRoute {
        route: EnvoyRoute {
            name: name.to_owned(),
            r#match: Some(matches::preflight(route_match, method, cors)),
            action: Some(route::Action::Route(RouteAction {
                cluster_specifier: Some(ClusterSpecifier::Cluster(REFUSED_CLUSTER.to_owned())),
                cluster_not_found_response_code: ClusterNotFoundResponseCode::InternalServerError
                    .into(),
                ..Default::default()
            })),
            ..Default::default()
        },
        filters: BTreeMap::from([(FILTER, config)]),
    }
}

/// Matches only allowed origins, and adds the headers that browsers expect. Returns `None` if no
/// origin is allowed.
pub(crate) fn from_allowed_origins(cors: &Cors, plain: &EnvoyRoute) -> Option<EnvoyRoute> {
    let Cors {
        allow_origins,
        allow_credentials,
        // Only responses to preflights need these headers.
        allow_methods: _,
        allow_headers: _,
        expose_headers,
        max_age_seconds: _,
        allow_private_network: _,
        ignores_matched_headers: _,
    } = cors;
    let origins: Vec<String> = usable("", allow_origins, &mut RenderProblems::default())
        .into_iter()
        // Stricter than the CORS filter, because Envoy evaluates this match for every request.
        .filter(|origin| !is_costly(origin))
        .map(|origin| match origin {
            cors_origin::Kind::Exact(origin) => quote(origin),
            cors_origin::Kind::Regex(origin) => format!("(?:{origin})"),
        })
        // No request has an empty origin, and Envoy rejects an empty match.
        .filter(|origin| !origin.is_empty())
        .collect();
    if origins.is_empty() {
        return None;
    }
    let mut route = plain.clone();
    route
        .r#match
        .get_or_insert_default()
        .headers
        .push(matches::header(
            "origin",
            wrappers::matching(origins.join("|")),
        ));
    let exposed = joined(
        "",
        "",
        exposed(expose_headers, *allow_credentials),
        &mut RenderProblems::default(),
    );
    let headers = [
        // The only value with a format operator, which expands to the matched origin.
        ("access-control-allow-origin", "%REQ(origin)%".to_owned()),
        (
            "access-control-allow-credentials",
            if *allow_credentials { "true" } else { "" }.to_owned(),
        ),
        ("access-control-expose-headers", exposed.replace('%', "%%")),
    ];
    let action = HeaderAppendAction::OverwriteIfExistsOrAdd;
    let headers = headers.into_iter().filter(|(_, value)| !value.is_empty());
    let headers = headers.map(|(name, value)| wrappers::header(name, value, action));
    route.response_headers_to_add = headers.chain(route.response_headers_to_add).collect();
    Some(route)
}
