//! Route actions that forward requests: weighted backends, rewrites and timeouts.

use envoy_types::pb::envoy::config::route::v3::{
    RouteAction, WeightedCluster, route,
    route_action::{ClusterSpecifier, HostRewriteSpecifier},
    weighted_cluster::ClusterWeight,
};
use sesame_proto::schema::{
    Forward, HeaderModifier, PathMatch, Route, UrlRewrite, WeightedBackend,
};

use super::answers::{GRPC_REFUSAL, HTTP_REFUSAL, RefusalAnswer, UNAVAILABLE, answer};
use super::backend_rewrites::{self, RequestPart};
use super::headers::{self, HeaderChanges};
use super::{internal_redirect, mirrors, paths, retries, sessions};
use crate::clusters::fallback;
use crate::context::RenderContext;
use crate::l4::weights::{self, REFUSED_CLUSTER, Share};
use crate::rendered::RenderProblems;
use crate::wrappers;

/// Returns each action with the requests that it handles: usually one, or one per backend if any
/// backend has a rewrite.
///
/// `rule_request` contains the rule's header changes if any backend changes request headers. Each
/// backend then applies them before its own.
pub(super) fn render_all(
    route: &Route,
    forward: &Forward,
    rule_request: &HeaderChanges,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Result<Vec<(RequestPart, route::Action)>, String> {
    let parts = backend_rewrites::parts(forward);
    let mut render = |forward: &Forward| render(route, forward, rule_request, context, problems);
    if parts.is_empty() {
        return Ok(vec![(RequestPart::default(), render(forward)?)]);
    }
    let actions = parts
        .into_iter()
        .map(|(part, forward)| Ok((part, render(&forward)?)));
    actions.collect()
}

fn render(
    route: &Route,
    forward: &Forward,
    rule_request: &HeaderChanges,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
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
        unavailable,
        stream_idle_timeout_ms,
        internal_redirect,
    } = forward;
    let shares = weights::shares(&route.name, backends, context, problems);
    let mut action = RouteAction {
        // Always set a timeout, because Envoy's default is 15 s.
        timeout: wrappers::milliseconds(*request_timeout_ms),
        retry_policy: retries::render(retry.as_deref(), *backend_timeout_ms),
        request_mirror_policies: mirrors::render(&route.name, mirrors, context, problems),
        internal_redirect_policy: internal_redirect.as_deref().map(internal_redirect::render),
        ..Default::default()
    };
    // The connection manager's idle timeout would end a quiet request too early, so the request
    // timeout replaces it. Disabling the request timeout disables both.
    if let Some(timeout) = stream_idle_timeout_ms {
        action.idle_timeout = wrappers::milliseconds(*timeout);
    } else if *request_timeout_disabled || *request_timeout_ms > context.stream_idle_ms {
        action.idle_timeout = wrappers::milliseconds(*request_timeout_ms);
    }
    let RefusalAnswer { status, not_found } = match (route.grpc, *unavailable) {
        (true, _) => GRPC_REFUSAL,
        (false, false) => HTTP_REFUSAL,
        (false, true) => UNAVAILABLE,
    };
    let is_refused = |share: &Share<'_>| share.cluster == REFUSED_CLUSTER;
    if shares.is_empty() {
        return Err("no backend has weight".to_owned());
    }
    if shares.iter().all(is_refused) {
        return Ok(answer(status));
    }
    if shares.iter().any(is_refused) {
        action.cluster_not_found_response_code = not_found.into();
    }
    let cluster = |share: &Share<'_>| {
        let special = match session {
            Some(_) => sessions::cluster(share.cluster),
            None => fallback::name(share.cluster),
        };
        if context.has_cluster(&special) {
            special
        } else {
            share.cluster.to_owned()
        }
    };
    let clusters = clusters(&route.name, &shares, cluster, rule_request, problems);
    action.cluster_specifier = Some(clusters);
    if let Some(rewrite) = rewrite {
        rewrite_into(&mut action, rewrite, route.path.as_ref())?;
    }
    Ok(route::Action::Route(action))
}

/// Header changes need weighted clusters, even for a single backend.
fn clusters(
    name: &str,
    shares: &[Share<'_>],
    cluster: impl Fn(&Share<'_>) -> String,
    rule_request: &HeaderChanges,
    problems: &mut RenderProblems,
) -> ClusterSpecifier {
    match shares {
        [only] if rule_request.is_empty() && !changes_headers(only.backend) => {
            ClusterSpecifier::Cluster(cluster(only))
        }
        shares => ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: shares
                .iter()
                .map(|share| weighted(name, share, cluster(share), rule_request, problems))
                .collect(),
            ..Default::default()
        }),
    }
}

fn rewrite_into(
    action: &mut RouteAction,
    rewrite: &UrlRewrite,
    path: Option<&PathMatch>,
) -> Result<(), String> {
    let UrlRewrite {
        host,
        path: to,
        host_header,
    } = rewrite;
    if !host.is_empty() {
        headers::check_target(host).map_err(|reason| format!("rewritten host: {reason}"))?;
        action.host_rewrite_specifier =
            Some(HostRewriteSpecifier::HostRewriteLiteral(host.clone()));
    }
    if host.is_empty() && !host_header.is_empty() {
        headers::check_name(host_header)
            .map_err(|why| format!("header for the rewritten host: {why}"))?;
        action.host_rewrite_specifier =
            Some(HostRewriteSpecifier::HostRewriteHeader(host_header.clone()));
    }
    if let Some(to) = to {
        match paths::replacement(path, to)? {
            paths::PathReplacement::Keep => {}
            paths::PathReplacement::Full(to) => {
                action.regex_rewrite = Some(paths::substitute("^.+$", paths::literal(&to)));
            }
            paths::PathReplacement::Prefix(to) => action.prefix_rewrite = to,
            paths::PathReplacement::Regex { pattern, to } => {
                action.regex_rewrite = Some(paths::substitute(&pattern, to));
            }
        }
    }
    Ok(())
}

fn changes_headers(backend: &WeightedBackend) -> bool {
    changes_request(backend) || changes(backend.response_headers.as_deref())
}

pub(super) fn changes_request(backend: &WeightedBackend) -> bool {
    changes(backend.request_headers.as_deref())
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
    problems: &mut RenderProblems,
) -> ClusterWeight {
    let WeightedBackend {
        backend: _,
        weight: _,
        request_headers,
        response_headers,
        // Backends with rewrites have separate actions.
        rewrite: _,
    } = share.backend;
    let request = rule_request.then(&headers::changes(
        name,
        request_headers.as_deref(),
        problems,
    ));
    let response = headers::changes(name, response_headers.as_deref(), problems);
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
