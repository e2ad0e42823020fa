//! Explains the response from the route that handles a request.

use sesame_proto::refusal;
use sesame_proto::schema::retry::Condition;
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{DirectResponse, Forward, Redirect, Retry, Route, Snapshot, UrlRewrite};

use super::backends::explained_backends;
use super::compared::Compared;
use super::describe;
use super::effects;
use super::expressions::Expressions;
use super::location;
use super::outcome::{ExplainedOutcome, ExplainedRoute, Explanation};
use super::routes::{self, Winner};

/// Describes the default retry policy, as rendered for Envoy.
pub(super) const RETRIES: &str = "up to 2, if no backend has received the request";

pub(super) fn explain(
    snapshot: &Snapshot,
    domain: &str,
    winner: Winner<'_>,
    request: &Compared,
    expressions: &mut Expressions,
    explanation: &mut Explanation,
) {
    let Winner { route, preflight } = winner;
    explanation.route = ExplainedRoute::parse(&route.name, preflight);
    explanation.filters = effects::for_route(route, &snapshot.rate_limits, request, expressions);
    explanation.outcome = match preflight_answer(snapshot, winner, request, expressions) {
        Some(outcome) => outcome,
        None => action(snapshot, domain, route, request).unwrap_or_else(|reason| {
            request.answered(
                refusal::HTTP,
                format!("the rule cannot be served: {reason}"),
            )
        }),
    };
}

fn preflight_answer(
    snapshot: &Snapshot,
    winner: Winner<'_>,
    request: &Compared,
    expressions: &mut Expressions,
) -> Option<ExplainedOutcome> {
    let Winner { route, preflight } = winner;
    let cors = route.cors.as_ref()?;
    let origin = request.filled("origin")?;
    request.filled("access-control-request-method")?;
    if request.method != "OPTIONS" || !(preflight || routes::forwards(snapshot, route)) {
        return None;
    }
    let allowed = effects::is_allowed(cors, &origin, expressions);
    let reason = if allowed {
        format!("CORS answers the preflight: origin {origin} is allowed")
    } else {
        format!("CORS answers the preflight without CORS headers: origin {origin} is not allowed")
    };
    Some(ExplainedOutcome::Answered {
        status: 200,
        grpc_status: None,
        reason,
    })
}

/// Fails if the rule cannot be served.
fn action(
    snapshot: &Snapshot,
    domain: &str,
    route: &Route,
    request: &Compared,
) -> Result<ExplainedOutcome, String> {
    match &route.action {
        Some(Action::Forward(it)) => forward(snapshot, route, it, request),
        Some(Action::Redirect(it)) => redirect(route, it, domain, request),
        Some(Action::DirectResponse(DirectResponse {
            status,
            body,
            content_type: _,
        })) => {
            let status = if (200..600).contains(status) {
                *status
            } else {
                refusal::HTTP
            };
            let reason = match status {
                421 => format!(
                    "the host belongs to {}, which uses separate connections",
                    route.name
                ),
                _ if !body.is_empty() => format!("the rule responds with {} bytes", body.len()),
                200..500 => "the rule responds without a backend".to_owned(),
                _ => {
                    "the rule responds without a backend, is invalid, or has only invalid backends"
                        .to_owned()
                }
            };
            Ok(request.answered(status, reason))
        }
        None => Err("the route has no action".to_owned()),
    }
}

fn redirect(
    route: &Route,
    redirect: &Redirect,
    domain: &str,
    request: &Compared,
) -> Result<ExplainedOutcome, String> {
    let status = redirect.status;
    if ![301, 302, 303, 307, 308].contains(&status) {
        return Err(format!("redirect status {status} is unknown"));
    }
    Ok(ExplainedOutcome::Redirected {
        status,
        grpc_status: request.grpc_status(status),
        location: location::location(redirect, route.path.as_ref(), domain, request)?,
        reason: "the rule redirects".to_owned(),
    })
}

fn forward(
    snapshot: &Snapshot,
    route: &Route,
    forward: &Forward,
    request: &Compared,
) -> Result<ExplainedOutcome, String> {
    let Forward {
        backends,
        rewrite,
        mirrors: _,
        request_timeout_ms,
        request_timeout_disabled: _,
        backend_timeout_ms,
        retry,
        session: _,
        unavailable,
        stream_idle_timeout_ms: _,
        internal_redirect: _,
    } = forward;
    let status = match (route.grpc, *unavailable) {
        (true, _) => refusal::GRPC,
        (false, false) => refusal::HTTP,
        (false, true) => refusal::UNAVAILABLE,
    };
    let backends = explained_backends(snapshot, backends, &status.to_string(), |rewrite| {
        Some(effects::rewritten(rewrite, route, request))
    });
    if backends.is_empty() {
        return Err("no backend has weight".to_owned());
    }
    if backends.iter().all(|it| it.refused.is_some()) {
        return Ok(request.answered(status, "none of the rule's backends is valid".to_owned()));
    }
    let UrlRewrite {
        host,
        path,
        host_header,
    } = rewrite.as_deref().cloned().unwrap_or_default();
    let header_host = Some(&host_header).filter(|it| !it.is_empty());
    let header_host = header_host.and_then(|name| request.filled(name));
    let header_host = header_host.map(|host| request.shown(host));
    let path = match &path {
        Some(to) => location::replaced(route.path.as_ref(), to, request, false)?,
        None => request.path_and_query(),
    };
    let limit = |milliseconds: u64| Some(milliseconds).filter(|it| *it > 0);
    Ok(ExplainedOutcome::Forwarded {
        backends,
        host: if host.is_empty() {
            header_host.unwrap_or_else(|| request.authority.clone())
        } else {
            host
        },
        path,
        request_timeout_ms: limit(*request_timeout_ms),
        backend_timeout_ms: limit(*backend_timeout_ms),
        retries: retries(retry.as_deref()),
    })
}

fn retries(retry: Option<&Retry>) -> String {
    let Some(Retry {
        statuses,
        attempts,
        backoff_ms,
        unprocessed_only,
        conditions,
    }) = retry
    else {
        return RETRIES.to_owned();
    };
    if *attempts == 0 {
        return "none".to_owned();
    }
    let most = (*attempts).min(Retry::MAX_ATTEMPTS);
    let conditions = conditions
        .iter()
        .filter_map(|it| Condition::try_from(*it).ok());
    let names: Vec<String> = conditions.filter_map(Condition::name).collect();
    let mut description = if !names.is_empty() {
        let names = names.join(", ");
        format!("up to {most}, if no backend has received the request, and on {names}")
    } else if *unprocessed_only {
        format!("up to {most}, if no backend has processed the request")
    } else {
        format!("up to {most}, when a connection breaks or an attempt times out")
    };
    if !statuses.is_empty() {
        let statuses: Vec<String> = statuses.iter().map(u32::to_string).collect();
        description.extend([", or the status is ", &statuses.join(", ")]);
    }
    if *backoff_ms > 0 {
        let backoff_ms = (*backoff_ms).max(Retry::LEAST_BACKOFF_MS);
        description.extend(["; pauses from ", &describe::duration(backoff_ms), " on"]);
    }
    description
}
