//! Limits the size of a route in the proxy's configuration.
//!
//! A rule's filters and backends are copied for each match and hostname, so an object of 256 KiB
//! can expand to hundreds of MiB. The computed size approximates the rendered bytes, and is never
//! below the encoded size in the snapshot. The proxy uses about five times as much memory.

mod messages;

use self::messages::{
    address_filter_size, cors_size, count, filters_size, headers_size, message_size, redirect_size,
    rewrite_size, session_size, sum, text, texts,
};
use crate::expressions::Answer;
use crate::schema::path_match::Kind as PathKind;
use crate::schema::route::Action;
use crate::schema::{
    ContextValue, Cors, DirectResponse, ExternalAuth, ExternalAuthGrpc, ExternalAuthHttp, Forward,
    HeaderModifier, Mirror, OidcLogin, Redirect, RequestFilters, Retry, Route, StringMatch,
    WeightedBackend, external_auth, string_match,
};

/// Maximum size per match and hostname, in bytes, which always fits into a shard.
pub const MAX_PER_MATCH: u64 = 768 * 1024;
/// Maximum size of a route for all matches and hostnames, in bytes.
pub const MAX_PER_ROUTE: u64 = 8 * 1024 * 1024;
/// Maximum size of a virtual host's routes, in bytes.
pub const MAX_PER_VIRTUAL_HOST: u64 = 16 * 1024 * 1024;
/// Maximum size of a Gateway's virtual hosts, in bytes.
pub const MAX_PER_GATEWAY: u64 = 96 * 1024 * 1024;

/// Maximum size of a PEM trust bundle with revocation lists, in bytes. Base64 compresses to three
/// quarters, so the bundle fits into a shard.
pub const MAX_TRUST_BUNDLE_BYTES: usize = 1024 * 1024;
/// Maximum total size of all distinct trust bundles that one namespace's policies use, in bytes.
pub const MAX_BUNDLE_BYTES_PER_NAMESPACE: usize = 8 * 1024 * 1024;

/// Overhead per route in the proxy, in bytes.
const ROUTE: u64 = 512;
/// Overhead per string.
const TEXT: u64 = 64;
/// Overhead per header change, which the proxy parses as a format string.
const HEADER: u64 = 128;
const EXPRESSION: u64 = 512;
const EXPRESSION_CHARACTER: u64 = 16;
/// Overhead per external authorization, excluding strings.
const AUTHORIZATION: u64 = 1024;
/// Overhead per login in addition to [`AUTHORIZATION`], excluding strings that the snapshot contains.
const LOGIN: u64 = 3072;
/// Size of the headers that describe the request to an authorization service.
const SUBREQUEST: u64 = 1024;
/// Overhead per condition on a client certificate, excluding its strings.
const CERTIFICATE_NAME: u64 = 256;
const SESSION: u64 = 2048;
const INTERNAL_REDIRECT: u64 = 512;
const RATE_LIMIT: u64 = 4096;
/// Overhead per set of request filters, excluding headers.
const REQUEST_FILTERS: u64 = 4096;
const SESSION_NAMES: u64 = 8;

/// Parts of a rule that are copied for each match and hostname.
#[derive(Clone, Copy, Debug)]
pub struct RuleParts<'r> {
    /// Route name.
    pub name: &'r str,
    /// The rule's action.
    pub answer: RuleAnswer<'r>,
    /// Changes to request headers.
    pub request_headers: Option<&'r HeaderModifier>,
    /// Changes to response headers.
    pub response_headers: Option<&'r HeaderModifier>,
    /// CORS policy.
    pub cors: Option<&'r Cors>,
    /// External authorizations.
    pub external_auth: &'r [ExternalAuth],
    /// Number of rate limits.
    pub rate_limits: usize,
    /// Request and response filters.
    pub filters: Option<&'r RequestFilters>,
}

/// Action of a rule.
#[derive(Clone, Copy, Debug)]
pub enum RuleAnswer<'r> {
    /// Forwards the request.
    Forward(&'r Forward),
    /// Redirects the client.
    Redirect(&'r Redirect),
    /// Responds directly.
    Direct(Option<&'r DirectResponse>),
}

/// Size of a rule per match and hostname, without conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSize {
    /// Proxy routes per match.
    copies: u64,
    /// Size per match without conditions, in bytes.
    each: u64,
}

impl RuleSize {
    /// Computes the size.
    pub fn new(parts: &RuleParts<'_>) -> Self {
        let RuleParts {
            name,
            answer,
            request_headers,
            response_headers,
            cors,
            external_auth,
            rate_limits,
            filters,
        } = *parts;
        let request = request_headers.map_or(0, headers_size);
        let parts = [
            request,
            response_headers.map_or(0, headers_size),
            cors.map_or(0, cors_size),
            sum(external_auth.iter().map(of_external_auth)),
            count(rate_limits).saturating_mul(RATE_LIMIT),
            filters.map_or(0, filters_size),
            ROUTE + text(name),
        ];
        let (kind, shares, answer_size, once) = match answer {
            RuleAnswer::Forward(forward) => {
                let (shares, common, once) = forward_size(forward, request);
                (Answer::Forwarded, shares, common, once)
            }
            RuleAnswer::Redirect(redirect) => (Answer::Redirected, 1, redirect_size(redirect), 0),
            RuleAnswer::Direct(response) => {
                let body = response.map_or(0, message_size);
                (Answer::Direct, 1, body, 0)
            }
        };
        let evaluations = kind.evaluations(cors.is_some());
        let copies = evaluations.saturating_mul(shares);
        let each = sum(parts.into_iter().chain([answer_size]));
        let each = copies
            .saturating_mul(each)
            .saturating_add(evaluations.saturating_mul(once));
        Self { copies, each }
    }

    /// Returns the size of a match whose conditions take `conditions` bytes.
    pub fn with_match(self, conditions: u64) -> u64 {
        self.each
            .saturating_add(self.copies.saturating_mul(conditions))
    }
}

/// Returns the size of a match's conditions in bytes.
pub fn of_match(
    path: Option<&PathKind>,
    method: &str,
    headers: &[StringMatch],
    query_params: &[StringMatch],
) -> u64 {
    let path = match path {
        Some(
            PathKind::Exact(path)
            | PathKind::Prefix(path)
            | PathKind::Regex(path)
            | PathKind::TextPrefix(path),
        ) => text(path),
        None => 0,
    };
    let values = headers.iter().chain(query_params);
    let values = values.map(|StringMatch { name, kind }| {
        let value = match kind {
            Some(string_match::Kind::Exact(value) | string_match::Kind::Regex(value)) => value,
            Some(string_match::Kind::Text(text)) => &text.value,
            Some(string_match::Kind::Present(_)) | None => "",
        };
        text(name).saturating_add(text(value))
    });
    sum(values.chain([path, text(method)]))
}

/// Returns the size of an external authorization in bytes.
pub fn of_external_auth(auth: &ExternalAuth) -> u64 {
    let ExternalAuth {
        backend,
        protocol,
        max_body_bytes: _,
        // The policy's name is not rendered.
        policy: _,
        context,
        timeout_ms: _,
        fail_open: _,
        partial_body: _,
        no_response_headers: _,
        exempt_clients,
    } = auth;
    let exempt = sum(exempt_clients.iter().map(address_filter_size));
    let context = context
        .iter()
        .map(|ContextValue { name, value }| sum([text(name), text(value)]));
    let protocol = match protocol {
        Some(external_auth::Protocol::Grpc(ExternalAuthGrpc {
            request_headers,
            peer_certificate: _,
            text_body: _,
        })) => texts(request_headers),
        Some(external_auth::Protocol::Http(ExternalAuthHttp {
            path_prefix,
            request_headers,
            response_headers,
            path,
            subrequest,
        })) => sum([
            text(path_prefix),
            texts(request_headers),
            texts(response_headers),
            text(path),
            if *subrequest { SUBREQUEST } else { 0 },
        ]),
        Some(external_auth::Protocol::Oidc(login)) => of_login(login),
        None => 0,
    };
    sum(context.chain([AUTHORIZATION, text(backend), protocol, exempt]))
}

fn of_login(login: &OidcLogin) -> u64 {
    let OidcLogin {
        client_id,
        authorization_endpoint,
        token_endpoint,
        end_session_endpoint,
        hostnames,
        scopes,
        redirect_path,
        logout_path,
        api_paths,
        no_refresh: _,
        forwarded: _,
    } = login;
    let once = [
        client_id,
        authorization_endpoint,
        token_endpoint,
        end_session_endpoint,
        redirect_path,
        logout_path,
    ];
    let once = once.map(|it| text(it));
    // Each path has two matchers, and the redirect path is also part of a URI.
    let api = texts(api_paths).saturating_mul(2);
    sum(once.into_iter().chain([
        LOGIN,
        text(redirect_path),
        texts(hostnames),
        texts(scopes),
        api,
    ]))
}

/// Returns the size of a route in bytes.
pub fn of_route(route: &Route) -> u64 {
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
        grpc: _,
        external_auth,
        rate_limits,
        filters,
    } = route;
    let parts = RuleParts {
        name,
        answer: match action {
            Some(Action::Forward(forward)) => RuleAnswer::Forward(forward),
            Some(Action::Redirect(redirect)) => RuleAnswer::Redirect(redirect),
            Some(Action::DirectResponse(response)) => RuleAnswer::Direct(Some(response)),
            None => RuleAnswer::Direct(None),
        },
        request_headers: request_headers.as_deref(),
        response_headers: response_headers.as_deref(),
        cors: cors.as_deref(),
        external_auth,
        rate_limits: rate_limits.len(),
        filters: filters.as_deref(),
    };
    let path = path.as_ref().and_then(|path| path.kind.as_ref());
    RuleSize::new(&parts).with_match(of_match(path, method, headers, query_params))
}

/// Formats a size for messages.
pub fn in_words(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1024))
}

/// Returns the number of copies, the bytes in each copy, and the bytes that occur once.
fn forward_size(forward: &Forward, rule_request: u64) -> (u64, u64, u64) {
    let Forward {
        backends,
        rewrite,
        mirrors,
        request_timeout_ms: _,
        request_timeout_disabled: _,
        backend_timeout_ms: _,
        retry,
        session,
        unavailable: _,
        stream_idle_timeout_ms: _,
        internal_redirect,
    } = forward;
    let common = [
        internal_redirect
            .as_deref()
            .map_or(0, |_| INTERNAL_REDIRECT),
        rewrite.as_deref().map_or(0, rewrite_size),
        retry.as_deref().map_or(0, |retry| {
            let Retry {
                statuses,
                attempts: _,
                backoff_ms: _,
                unprocessed_only: _,
                conditions,
            } = retry;
            TEXT.saturating_add(count(statuses.len()).saturating_mul(8))
                .saturating_add(count(conditions.len()).saturating_mul(32))
        }),
        session.as_deref().map_or(0, session_size),
    ];
    let mirrors = mirrors.iter().map(|Mirror { backend, .. }| text(backend));
    let common = sum(mirrors.chain(common));
    // If any backend changes request headers, each backend repeats the rule's own header changes.
    let changes = backends.iter().any(|it| it.request_headers.is_some());
    let repeated = if changes { rule_request } else { 0 };
    let shares = backends.iter().map(|share| {
        let WeightedBackend {
            backend,
            weight: _,
            request_headers,
            response_headers,
            rewrite,
        } = share;
        sum([
            text(backend),
            request_headers.as_deref().map_or(0, headers_size),
            response_headers.as_deref().map_or(0, headers_size),
            rewrite.as_deref().map_or(0, rewrite_size),
            repeated,
        ])
    });
    let weighted = || backends.iter().filter(|it| it.weight > 0);
    let parts = if weighted().any(|it| it.rewrite.is_some()) {
        count(weighted().count())
    } else {
        1
    };
    (parts, common, sum(shares))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::schema::{CorsOrigin, Header};

    fn headers(count: usize, value: usize) -> HeaderModifier {
        let header = Header {
            name: "x".to_owned(),
            value: "v".repeat(value),
            parts: Vec::new(),
        };
        HeaderModifier {
            add: vec![header; count],
            ..HeaderModifier::default()
        }
    }

    fn forward(backends: Vec<WeightedBackend>) -> Route {
        Route {
            action: Some(Action::Forward(Forward {
                backends,
                ..Forward::default()
            })),
            request_headers: Some(Box::new(headers(16, 4096))),
            ..Route::default()
        }
    }

    #[test]
    fn each_copy_of_a_filter_counts() {
        let rewriting = WeightedBackend {
            weight: 1,
            rewrite: Some(Box::default()),
            ..WeightedBackend::default()
        };
        let changing = WeightedBackend {
            weight: 1,
            request_headers: Some(Box::new(headers(1, 1))),
            ..WeightedBackend::default()
        };
        let plain = WeightedBackend {
            weight: 1,
            ..WeightedBackend::default()
        };
        let filters = 16 * 4096;
        for (backends, copies) in [
            (vec![plain; 16], 1),
            (vec![rewriting; 16], 16),
            (vec![changing; 16], 17),
        ] {
            let size = of_route(&forward(backends));
            assert_eq!(size / filters, copies, "{size}");
        }
        let redirect = Route {
            action: Some(Action::Redirect(Redirect::default())),
            cors: Some(Box::default()),
            ..forward(Vec::new())
        };
        assert_eq!(of_route(&redirect) / filters, 5);
    }

    #[test]
    fn route_size_is_at_least_its_encoded_length() {
        let route = Route {
            name: "HTTPRoute/ns/name/rules/0/matches/0".to_owned(),
            headers: vec![StringMatch::default(); 16],
            cors: Some(Box::new(Cors {
                allow_origins: vec![CorsOrigin::default(); 64],
                allow_headers: vec!["x".to_owned(); 64],
                ..Cors::default()
            })),
            external_auth: vec![ExternalAuth::default()],
            ..forward(vec![WeightedBackend::default(); 16])
        };
        assert!(of_route(&route) >= route.encoded_len() as u64);
    }
}
