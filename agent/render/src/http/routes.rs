//! One route: what it matches, and what happens.
//!
//! A route whose match Envoy would refuse is left out; a route whose action cannot be said answers 500.
//! Nothing is said twice and no option is empty: a table costs Envoy about 7 µs a route at every change.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, Route as EnvoyRoute, RouteAction, RouteMatch, WeightedCluster, route,
    route_action::{ClusterNotFoundResponseCode, ClusterSpecifier, HostRewriteSpecifier},
    weighted_cluster::ClusterWeight,
};
use envoy_types::pb::google::protobuf::Any;
use sesame_proto::refusal;
use sesame_proto::schema::{
    Cors, DirectResponse, Forward, HeaderModifier, PathMatch, Route, UrlRewrite, WeightedBackend,
    route::Action,
};

use super::headers::{self, HeaderChanges};
use super::sessions::{self, SessionParts};
use super::{cors, hcm, matches, mirrors, paths, redirects, retries};
use crate::context::RenderContext;
use crate::l4::weights::{self, REFUSED_CLUSTER, Share};
use crate::rendered::Problems;
use crate::wrappers;

/// A route without its filters' configuration, and that.
pub(crate) struct RenderedRoute {
    pub(crate) route: EnvoyRoute,
    /// By the filter's name.
    pub(crate) filters: BTreeMap<&'static str, Any>,
}

/// Returns the routes that say it in the virtual host of `domain`, in their order: mostly one, none where the match cannot
/// be said.
pub(crate) fn render(
    route: &Route,
    domain: &str,
    context: &RenderContext<'_>,
    problems: &mut Problems,
) -> Vec<RenderedRoute> {
    let Route {
        name,
        path,
        method,
        headers,
        query_params,
        action,
        request_headers,
        response_headers,
        cors,
        grpc,
    } = route;
    let route_match = matches::render(path.as_ref(), method, headers, query_params, *grpc);
    let Some(route_match) = problems.value(name, route_match, "the route is left out") else {
        return Vec::new();
    };
    let mut request = headers::changes(name, request_headers.as_ref(), problems);
    let response = headers::changes(name, response_headers.as_ref(), problems);
    let mut filters = BTreeMap::new();
    if let Some(cors) = cors {
        filters.insert(cors::FILTER, cors::render(name, cors, problems));
    }
    // Envoy applies a backend's changes before the route's; a request meets its rule first. So where a
    // backend has its own, it gets the rule's too, and the route has none.
    let rule_request = match action {
        Some(Action::Forward(forward)) if forward.backends.iter().any(changes_request) => {
            std::mem::take(&mut request)
        }
        _ => HeaderChanges::default(),
    };
    let with = |route_match: RouteMatch, action: route::Action| RenderedRoute {
        route: EnvoyRoute {
            name: name.clone(),
            r#match: Some(route_match),
            request_headers_to_add: request.add.clone(),
            request_headers_to_remove: request.remove.clone(),
            response_headers_to_add: response.add.clone(),
            response_headers_to_remove: response.remove.clone(),
            action: Some(action),
            ..Default::default()
        },
        filters: filters.clone(),
    };
    let action = match action {
        Some(Action::Forward(forward)) => self::forward(
            name,
            path.as_ref(),
            forward,
            if *grpc { GRPC_REFUSAL } else { HTTP_REFUSAL },
            &rule_request,
            context,
            problems,
        )
        .map(|action| {
            let mut rendered = with(route_match.clone(), action);
            let session = forward.session.as_ref().map(sessions::render);
            let session = session.and_then(|session| {
                problems.value(name, session, "requests are not kept on one endpoint")
            });
            if let Some(SessionParts { config, response }) = session {
                rendered.filters.insert(sessions::FILTER, config);
                rendered.route.response_headers_to_add.push(response);
            }
            vec![rendered]
        }),
        Some(Action::Redirect(redirect)) => {
            redirects::render(redirect, path.as_ref()).map(|action| {
                redirects::variants(redirect, domain, &route_match, action)
                    .into_iter()
                    .map(|(route_match, action)| with(route_match, route::Action::Redirect(action)))
                    .collect()
            })
        }
        Some(Action::DirectResponse(DirectResponse { status })) => {
            Ok(vec![with(route_match.clone(), answer(*status))])
        }
        None => Err("the route says nothing of what to do".to_owned()),
    };
    let mut routes = problems
        .value(name, action, "its requests are answered with 500")
        .unwrap_or_else(|| vec![with(route_match.clone(), answer(refusal::HTTP))]);
    if let Some(cors) = cors {
        routes = with_cors(name, routes, cors, &route_match, method);
    }
    routes
}

/// The routes with those that CORS adds.
fn with_cors(
    name: &str,
    routes: Vec<RenderedRoute>,
    cors: &Cors,
    route_match: &RouteMatch,
    method: &str,
) -> Vec<RenderedRoute> {
    let mut all = Vec::with_capacity(2 * routes.len() + 1);
    for mut rendered in routes {
        if matches!(rendered.route.action, Some(route::Action::Route(_))) {
            // The filter answers preflights here, if the route matches them.
            let preflight = (!method.is_empty() && method != "OPTIONS").then(|| RenderedRoute {
                route: EnvoyRoute {
                    r#match: Some(matches::preflight(route_match, method)),
                    ..rendered.route.clone()
                },
                filters: rendered.filters.clone(),
            });
            all.push(rendered);
            all.extend(preflight);
            continue;
        }
        if let Some(config) = rendered.filters.remove(cors::FILTER)
            && all.is_empty()
        {
            all.push(cors::preflight_route(name, route_match, method, config));
        }
        let allowed = cors::from_allowed_origins(cors, &rendered.route);
        all.extend(allowed.map(|route| RenderedRoute {
            route,
            filters: rendered.filters.clone(),
        }));
        all.push(rendered);
    }
    all
}

fn answer(status: u32) -> route::Action {
    route::Action::DirectResponse(DirectResponseAction {
        // What Envoy takes.
        status: if (200..600).contains(&status) {
            status
        } else {
            refusal::HTTP
        },
        ..Default::default()
    })
}

/// Answer to the share of an invalid backend: by itself, and by Envoy for a cluster that is never there.
type RefusalAnswer = (u32, ClusterNotFoundResponseCode);
const HTTP_REFUSAL: RefusalAnswer = (
    refusal::HTTP,
    ClusterNotFoundResponseCode::InternalServerError,
);
const GRPC_REFUSAL: RefusalAnswer = (
    refusal::GRPC,
    ClusterNotFoundResponseCode::ServiceUnavailable,
);

fn forward(
    name: &str,
    path: Option<&PathMatch>,
    forward: &Forward,
    (status, not_found): RefusalAnswer,
    rule_request: &HeaderChanges,
    context: &RenderContext<'_>,
    problems: &mut Problems,
) -> Result<route::Action, String> {
    let Forward {
        backends,
        rewrite,
        mirrors,
        request_timeout_ms,
        request_timeout_disabled,
        backend_timeout_ms,
        retry,
        session,
    } = forward;
    let shares = weights::shares(name, backends, context, problems);
    let cluster = |share: &Share<'_>| {
        let of_sessions = session.as_ref().map(|_| sessions::cluster(share.cluster));
        of_sessions
            .filter(|name| context.has_cluster(name))
            .unwrap_or_else(|| share.cluster.to_owned())
    };
    let mut action = RouteAction {
        // Always said: where nothing is, Envoy takes 15 s.
        timeout: wrappers::milliseconds(*request_timeout_ms),
        retry_policy: retries::render(retry.as_ref(), *backend_timeout_ms, session.is_some()),
        request_mirror_policies: mirrors::render(name, mirrors, context, problems),
        ..Default::default()
    };
    // The connection manager's limit on rest would cut a longer request that rests: the request's own
    // limit takes its place, also where that is none.
    if *request_timeout_disabled || *request_timeout_ms > hcm::stream_idle_ms(context.edge) {
        action.idle_timeout = wrappers::milliseconds(*request_timeout_ms);
    }
    match shares.as_slice() {
        [] => return Err("no backend has weight".to_owned()),
        shares if shares.iter().all(|share| share.cluster == REFUSED_CLUSTER) => {
            // Shorter than a cluster that is never there.
            return Ok(answer(status));
        }
        [only] if !changes_headers(only.backend) => {
            action.cluster_specifier = Some(ClusterSpecifier::Cluster(cluster(only)));
        }
        shares => {
            if shares.iter().any(|share| share.cluster == REFUSED_CLUSTER) {
                action.cluster_not_found_response_code = not_found.into();
            }
            action.cluster_specifier = Some(ClusterSpecifier::WeightedClusters(WeightedCluster {
                clusters: shares
                    .iter()
                    .map(|share| weighted(name, share, cluster(share), rule_request, problems))
                    .collect(),
                ..Default::default()
            }));
        }
    }
    if let Some(UrlRewrite { host, path: to }) = rewrite {
        if !host.is_empty() {
            headers::check_target(host).map_err(|reason| format!("rewritten host: {reason}"))?;
            action.host_rewrite_specifier =
                Some(HostRewriteSpecifier::HostRewriteLiteral(host.clone()));
        }
        if let Some(to) = to {
            match paths::replacement(path, to)? {
                paths::PathReplacement::Keep => {}
                paths::PathReplacement::Full(to) => {
                    action.regex_rewrite = Some(paths::substitute("^.+$", &to));
                }
                paths::PathReplacement::Prefix(to) => action.prefix_rewrite = to,
                paths::PathReplacement::Regex { pattern, to } => {
                    action.regex_rewrite = Some(paths::substitute(&pattern, &to));
                }
            }
        }
    }
    Ok(route::Action::Route(action))
}

fn changes_headers(backend: &WeightedBackend) -> bool {
    changes_request(backend) || changes(backend.response_headers.as_ref())
}

fn changes_request(backend: &WeightedBackend) -> bool {
    changes(backend.request_headers.as_ref())
}

fn changes(modifier: Option<&HeaderModifier>) -> bool {
    modifier.is_some_and(|HeaderModifier { set, add, remove }| {
        !(set.is_empty() && add.is_empty() && remove.is_empty())
    })
}

fn weighted(
    name: &str,
    share: &Share<'_>,
    cluster: String,
    rule_request: &HeaderChanges,
    problems: &mut Problems,
) -> ClusterWeight {
    let WeightedBackend {
        backend: _,
        weight: _,
        request_headers,
        response_headers,
    } = share.backend;
    let request = rule_request.then(&headers::changes(name, request_headers.as_ref(), problems));
    let response = headers::changes(name, response_headers.as_ref(), problems);
    ClusterWeight {
        name: cluster,
        weight: wrappers::uint32(share.weight),
        request_headers_to_add: request.add,
        request_headers_to_remove: request.remove,
        response_headers_to_add: response.add,
        response_headers_to_remove: response.remove,
        ..Default::default()
    }
}
