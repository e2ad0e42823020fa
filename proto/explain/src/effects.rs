//! Explains the effects of a route's filters on a request, in Envoy's order.

use std::borrow::Cow;

use sesame_proto::expressions::is_of_origins;
use sesame_proto::schema::external_auth::Protocol;
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{
    ContextValue, Cors, CorsOrigin, ExternalAuth, Fault, HeaderModifier, Mirror, OidcLogin,
    RateLimit, RateLimitService, RequestFilters, Route, SessionPersistence, UrlRewrite,
    cors_origin, session_persistence,
};

use super::access;
use super::compared::{Compared, HeaderValue};
use super::describe;
use super::expressions::Expressions;
use super::location;
use super::outcome::ExplainedFilter;

pub(super) fn for_route(
    route: &Route,
    limits: &[RateLimit],
    request: &Compared,
    expressions: &mut Expressions,
) -> Vec<ExplainedFilter> {
    let mut filters = Vec::new();
    if let Some(cors) = &route.cors {
        let mut cors = Cow::Borrowed(&**cors);
        if !matches!(route.action, Some(Action::Forward(_))) {
            // Envoy adds CORS headers to its own responses only for exact origins and simple
            // expressions.
            let origins = &mut cors.to_mut().allow_origins;
            origins.retain(|it| match &it.kind {
                Some(cors_origin::Kind::Regex(pattern)) => is_of_origins(pattern),
                _ => true,
            });
        }
        filters.push(filter("CORS", cors_effect(&cors, request, expressions)));
    }
    filters.extend(route.rate_limits.iter().map(|name| limited(name, limits)));
    filters.extend(route.external_auth.iter().map(authorized));
    let forward = match &route.action {
        Some(Action::Forward(forward)) => Some(forward),
        _ => None,
    };
    if let Some(session) = forward.and_then(|it| it.session.as_ref()) {
        filters.push(filter("SessionPersistence", session_effect(session)));
    }
    filters.extend(request_changes(
        route.request_headers.as_deref(),
        Some(request),
    ));
    if let Some(forward) = forward {
        if let Some(rewrite) = &forward.rewrite {
            filters.push(rewritten(rewrite, route, request));
        }
        if forward.internal_redirect.is_some() {
            let effect = "the proxy follows redirects from the backend, within limits";
            filters.push(filter("InternalRedirect", effect.to_owned()));
        }
        let mirrors = forward.mirrors.iter();
        filters.extend(mirrors.map(|mirror| filter("RequestMirror", mirror_effect(mirror))));
    }
    if let Some(Action::Redirect(_)) = &route.action {
        let effect = "the client is redirected, and no backend receives the request";
        filters.push(filter("RequestRedirect", effect.to_owned()));
    }
    filters.extend(response_changes(route.response_headers.as_deref()));
    filters
}

/// Each effect names its policies.
pub(super) fn of_policies(filters: &RequestFilters) -> Vec<ExplainedFilter> {
    let RequestFilters {
        max_body_bytes,
        request_headers,
        response_headers,
        grpc_web,
        fault,
        response,
        bandwidth,
        policies,
        // These filters' names already include the policy.
        address_filters: _,
        tokens: _,
        reserved_headers: _,
        authorizations: _,
        claim_headers: _,
        token_headers: _,
        exempt_from: _,
        credentials: _,
        csrf: _,
        reported: _,
        injected: _,
        grpc_json: _,
        maintenance: _,
    } = filters;
    let mut effects = Vec::new();
    if !bandwidth.is_empty() {
        effects.push(("Bandwidth", format!("{bandwidth} limits bytes per second")));
    }
    if !response.is_empty() {
        let effect =
            format!("{response} may compress the response or replace it with an error page");
        effects.push(("Response", effect));
    }
    if *grpc_web {
        effects.push(("GRPCWeb", "gRPC-Web is translated to gRPC".to_owned()));
    }
    if let Some(fault) = fault {
        effects.push(("Fault", injected(*fault)));
    }
    if *max_body_bytes > 0 {
        let effect = format!("bodies of more than {max_body_bytes} bytes get 413");
        effects.push(("RequestBody", effect));
    }
    let changes = [
        request_changes(request_headers.as_ref(), None),
        response_changes(response_headers.as_ref()),
    ];
    let policy_names = policies.join(", ");
    let effects = effects.into_iter();
    let effects = effects.map(|(name, effect)| filter(name, effect));
    let effects = effects.chain(changes.into_iter().flatten());
    let decided = effects.map(|it| ExplainedFilter {
        effect: format!("{} (by {policy_names})", it.effect),
        ..it
    });
    access::explain(filters)
        .into_iter()
        .chain(decided)
        .collect()
}

fn injected(fault: Fault) -> String {
    let Fault {
        delay_ms,
        delay_percent,
        abort_status,
        abort_percent,
    } = fault;
    let mut parts = Vec::new();
    if delay_ms > 0 {
        parts.push(format!("{delay_percent} % of requests wait {delay_ms} ms"));
    }
    if abort_status > 0 {
        parts.push(format!("{abort_percent} % get {abort_status}"));
    }
    parts.join(", ")
}

fn limited(name: &str, limits: &[RateLimit]) -> ExplainedFilter {
    let limit = limits.iter().find(|limit| limit.name == name);
    if let Some((limit, service)) = limit.and_then(|it| Some((it, it.service.as_ref()?))) {
        return filter("RateLimit", decided(limit, service));
    }
    let consequence = if limit.is_some_and(|it| it.report_only) {
        "only counted"
    } else {
        "rejected"
    };
    let whose = if limit.is_some_and(|it| it.fleet) {
        "this host's share of the limit"
    } else {
        "the limit"
    };
    let effect = format!("requests beyond {whose} {name} are {consequence}");
    filter("RateLimit", effect)
}

fn decided(limit: &RateLimit, service: &RateLimitService) -> String {
    let (name, backend, domain) = (&limit.name, &service.backend, &service.domain);
    if limit.report_only {
        return format!("{backend} learns of each request after its response for {name}");
    }
    let failing = if service.fail_open {
        "if it fails, all requests pass (failOpen)"
    } else {
        "if it fails, requests get 500"
    };
    format!(
        "{backend} decides about each request for {name}, with the domain {domain:?}; {failing}"
    )
}

pub(super) fn authorized(auth: &ExternalAuth) -> ExplainedFilter {
    if let Some(Protocol::Oidc(login)) = &auth.protocol {
        return logged_in(&auth.policy, login);
    }
    let policy_suffix = match auth.policy.as_str() {
        "" => String::new(),
        policy => format!(" for {policy}"),
    };
    let values = auth.context.iter();
    let values: Vec<String> = values
        .map(|ContextValue { name, value }| format!("{name}={value:?}"))
        .collect();
    let context = match values.join(", ") {
        values if values.is_empty() => values,
        values => format!(", with the context {values}"),
    };
    let failing = if auth.fail_open {
        "get its response; if it is unreachable, all requests pass (failOpen)"
    } else {
        "get its response, or 503 if it is unreachable"
    };
    let exempt = auth.exempt_clients.as_ref().map(access::exempt);
    let exempt = exempt.map_or_else(String::new, |it| format!("; {it} pass without it"));
    let effect = format!(
        "{} authorizes each request first{policy_suffix}{context}; denied requests {failing}{exempt}",
        auth.backend
    );
    filter("ExternalAuth", effect)
}

fn logged_in(policy: &str, login: &OidcLogin) -> ExplainedFilter {
    let api = match login.api_paths.as_slice() {
        [] => String::new(),
        paths => format!(", or are below {}", paths.join(", ")),
    };
    let effect = format!(
        "{policy} redirects requests without a session to {}; requests that do not load a page{api} \
         get 401. {} is the callback, and {} ends the session",
        login.authorization_endpoint, login.redirect_path, login.logout_path
    );
    filter("OIDC", effect)
}

/// `request` has the headers before the changes.
pub(super) fn request_changes(
    modifier: Option<&HeaderModifier>,
    request: Option<&Compared>,
) -> Option<ExplainedFilter> {
    let current = |name: &str| {
        let request = request?;
        match request.header(name) {
            HeaderValue::Is(values) => Some(request.shown(values.join(", "))),
            HeaderValue::Absent | HeaderValue::Unknown => None,
        }
    };
    let effect = describe::changes(modifier?, current);
    (!effect.is_empty()).then(|| filter("RequestHeaderModifier", effect))
}

pub(super) fn response_changes(modifier: Option<&HeaderModifier>) -> Option<ExplainedFilter> {
    let effect = describe::changes(modifier?, |_| None);
    (!effect.is_empty()).then(|| filter("ResponseHeaderModifier", effect))
}

pub(super) fn is_allowed(cors: &Cors, origin: &str, expressions: &mut Expressions) -> bool {
    cors.allow_origins
        .iter()
        .any(|CorsOrigin { kind }| match kind {
            Some(cors_origin::Kind::Exact(exact)) => exact == origin,
            Some(cors_origin::Kind::Regex(pattern)) => expressions.matches(pattern, origin),
            None => false,
        })
}

fn cors_effect(cors: &Cors, request: &Compared, expressions: &mut Expressions) -> String {
    match request.filled("origin") {
        None => "none: the request has no Origin".to_owned(),
        Some(origin) => {
            let allowed = is_allowed(cors, &origin, expressions);
            let origin = request.shown(origin);
            if allowed {
                format!("origin {origin} is allowed: the response has CORS headers")
            } else {
                format!("origin {origin} is not allowed: the response has no CORS headers")
            }
        }
    }
}

fn session_effect(session: &SessionPersistence) -> String {
    match &session.kind {
        Some(session_persistence::Kind::Cookie(name)) => {
            format!("cookie {name} keeps the client on one endpoint")
        }
        Some(session_persistence::Kind::Header(name)) => {
            format!("header {name} keeps the client on one endpoint")
        }
        None => "none".to_owned(),
    }
}

pub(super) fn rewritten(
    rewrite: &UrlRewrite,
    route: &Route,
    request: &Compared,
) -> ExplainedFilter {
    let UrlRewrite {
        host,
        path,
        host_header,
    } = rewrite;
    let mut parts = Vec::new();
    if !host.is_empty() {
        parts.push(format!("the host becomes {host}"));
    } else if !host_header.is_empty() {
        parts.push(format!("header {host_header} becomes the host, if present"));
    }
    if let Some(modifier) = path {
        parts.push(
            match location::replaced(route.path.as_ref(), modifier, request, false) {
                Ok(path) => format!("the path becomes {path}"),
                Err(reason) => reason,
            },
        );
    }
    filter("URLRewrite", parts.join(", "))
}

fn mirror_effect(mirror: &Mirror) -> String {
    let Mirror {
        backend,
        numerator,
        denominator,
    } = mirror;
    if numerator < denominator {
        format!("{backend} gets a copy of {numerator} in {denominator} requests")
    } else {
        format!("{backend} gets a copy")
    }
}

pub(super) fn filter(name: &str, effect: String) -> ExplainedFilter {
    ExplainedFilter {
        filter: name.to_owned(),
        effect,
    }
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::{AddressFilter, AddressRange};

    use super::*;

    #[test]
    fn reporting_limit_rejects_nothing() {
        let limit = |name: &str, report_only| RateLimit {
            name: name.to_owned(),
            report_only,
            ..RateLimit::default()
        };
        let limits = [limit("a", false), limit("b", true)];
        for (name, consequence) in [("a", "rejected"), ("b", "only counted")] {
            let expected = format!("requests beyond the limit {name} are {consequence}");
            assert_eq!(limited(name, &limits).effect, expected);
        }
    }

    #[test]
    fn authorization_names_its_object_and_fail_open() {
        let auth = ExternalAuth {
            backend: "Service/web/auth/80".to_owned(),
            policy: "HTTPProxy/web/shop".to_owned(),
            context: vec![ContextValue {
                name: "team".to_owned(),
                value: "a".to_owned(),
            }],
            ..ExternalAuth::default()
        };
        let start = "Service/web/auth/80 authorizes each request first for HTTPProxy/web/shop, with \
                     the context team=\"a\"; denied requests get its response";
        let closed = format!("{start}, or 503 if it is unreachable");
        assert_eq!(authorized(&auth).effect, closed);
        let open = ExternalAuth {
            fail_open: true,
            ..auth
        };
        let passing = format!("{start}; if it is unreachable, all requests pass (failOpen)");
        assert_eq!(authorized(&open).effect, passing);
        let range = |network: &str| AddressRange {
            network: network.to_owned(),
            peer: false,
        };
        let exempting = ExternalAuth {
            exempt_clients: Some(AddressFilter {
                name: String::new(),
                allow: vec![range("192.0.2.0/24")],
                deny: vec![range("192.0.2.1/32")],
            }),
            ..open
        };
        let exempt = "; clients in 192.0.2.0/24, except 192.0.2.1/32, pass without it";
        assert_eq!(authorized(&exempting).effect, passing + exempt);
    }
}
