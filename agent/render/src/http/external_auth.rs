//! External authorization: a service must allow a request before Envoy forwards it.
//!
//! Each authorization has its own composite filter, because a composite filter skips all filters
//! after one that pauses a request. Never let a request bypass a required check.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::HeaderMutationRules;
use envoy_types::pb::envoy::config::core::v3::{GrpcService, HeaderValue, HttpUri, http_uri};
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::{
    AuthorizationRequest, AuthorizationResponse, BufferSettings, ExtAuthz, HttpService,
    ext_authz::Services,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{ListStringMatcher, StringMatcher};
use envoy_types::pb::envoy::r#type::v3::{HttpStatus, StatusCode};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::schema::{
    ExternalAuth, ExternalAuthGrpc, ExternalAuthHttp, Route, external_auth::Protocol,
};

use super::exempt_clients::ExemptClients;
use super::{composite, headers};
use crate::context::RenderContext;
use crate::{collectors, wrappers};

/// In the order in which a request passes through them.
pub(crate) const FILTERS: [&str; Route::MAX_EXTERNAL_AUTHS] = [
    "external_auth",
    "external_auth/1",
    "external_auth/2",
    "external_auth/3",
];

/// Default timeout, short because the client has to wait. The Gateway API has no field for it.
const TIMEOUT_MS: u64 = 5_000;

/// Headers that a service must never change: framing, connection, `host` and the pseudo-headers.
const PROTECTED_HEADERS: &str = "(?i):.*|host|connection|content[-_]length|http2[-_]settings|keep[-_]alive|proxy[-_]connection|te|trailer|transfer[-_]encoding|upgrade";

/// Headers that a service must never receive, even if it receives all others: they would control
/// how Envoy sends the request.
const UNSENT_HEADERS: &str = "(?i):scheme|:protocol|connection|content[-_]length|expect|http2[-_]settings|keep[-_]alive|proxy[-_]connection|ssl[-_]client[-_].*|te|trailer|transfer[-_]encoding|upgrade|x[-_]envoy[-_].*";

/// Headers that describe the client's request, with Envoy's format strings. They replace headers
/// from the client.
const DESCRIPTION: [(&str, &str); 4] = [
    (
        "x-original-url",
        "%REQ(:SCHEME)%://%REQ(:AUTHORITY)%%REQ(:PATH)%",
    ),
    ("x-original-method", "%REQ(:METHOD)%"),
    ("x-auth-request-redirect", "%REQ(:PATH)%"),
    ("x-real-ip", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
];

/// Envoy adds this header to the service's response.
const SERVICE_TIME: &str = "x-envoy-upstream-service-time";

/// Maximum body size in bytes, and maximum timeout, even if the snapshot sets higher ones.
const MAX_BODY: u32 = 1024 * 1024;
const MAX_TIMEOUT_MS: u64 = 3_600_000;

pub(crate) fn listener_filter(place: usize) -> String {
    format!("listener_external_auth/{place}")
}

pub(crate) fn before_routes(
    auth: &ExternalAuth,
    context: &RenderContext<'_>,
) -> Result<Any, String> {
    if !auth.context.is_empty() {
        return Err("an authorization for all routes must not have a context".to_owned());
    }
    config(auth, true, context)
}

pub(crate) fn of_route(auth: &ExternalAuth, context: &RenderContext<'_>) -> Result<Any, String> {
    config(auth, false, context)
}

fn config(
    auth: &ExternalAuth,
    clear_route_cache: bool,
    context: &RenderContext<'_>,
) -> Result<Any, String> {
    let ExternalAuth {
        backend,
        protocol,
        max_body_bytes,
        policy: _,
        // Rendered by `auth_context`, because Envoy reads it from another place.
        context: values,
        timeout_ms,
        fail_open,
        partial_body,
        no_response_headers,
        exempt_clients,
    } = auth;
    if !context.has_cluster(backend) {
        return Err(format!(
            "authorization service `{backend}` has no cluster, so no request is allowed"
        ));
    }
    let timeout_ms = match timeout_ms {
        0 => TIMEOUT_MS,
        timeout_ms => (*timeout_ms).min(MAX_TIMEOUT_MS),
    };
    let mut filter = match protocol {
        Some(Protocol::Grpc(grpc)) => over_grpc(backend, timeout_ms, grpc)?,
        Some(Protocol::Http(_)) if !values.is_empty() => {
            return Err("HTTP authorization services receive no context".to_owned());
        }
        Some(Protocol::Http(http)) => over_http(backend, timeout_ms, http, *no_response_headers)?,
        Some(Protocol::Oidc(_)) => return Err("only routes can have logins".to_owned()),
        None => return Err("the authorization service has no protocol".to_owned()),
    };
    filter.with_request_body = (*max_body_bytes > 0).then(|| BufferSettings {
        max_request_bytes: (*max_body_bytes).min(MAX_BODY),
        // A service that does not expect a partial body would mistake it for the complete body.
        allow_partial_message: *partial_body,
        pack_as_bytes: !matches!(protocol, Some(Protocol::Grpc(grpc)) if grpc.text_body),
    });
    let filter = ExtAuthz {
        transport_api_version: envoy_types::pb::envoy::config::core::v3::ApiVersion::V3.into(),
        failure_mode_allow: *fail_open,
        status_on_error: Some(HttpStatus {
            code: StatusCode::ServiceUnavailable.into(),
        }),
        clear_route_cache,
        validate_mutations: true,
        emit_filter_state_stats: true,
        decoder_header_mutation_rules: Some(HeaderMutationRules {
            disallow_system: wrappers::boolean(true),
            disallow_expression: Some(wrappers::regex(PROTECTED_HEADERS)),
            ..Default::default()
        }),
        ..filter
    };
    let (name, filter) = ("envoy.filters.http.ext_authz", pack_any(filter));
    // Envoy cannot create the filter below `match_delegate` in a route's configuration.
    Ok(match exempt_clients {
        Some(clients) => composite::inline_if(ExemptClients::read(clients)?.others(), name, filter),
        None => composite::inline(name, filter),
    })
}

fn over_grpc(backend: &str, timeout_ms: u64, grpc: &ExternalAuthGrpc) -> Result<ExtAuthz, String> {
    let ExternalAuthGrpc {
        request_headers,
        peer_certificate,
        // The caller applies this with the other body settings.
        text_body: _,
    } = grpc;
    Ok(ExtAuthz {
        services: Some(grpc_service(backend, timeout_ms)),
        allowed_headers: named(request_headers)?,
        include_peer_certificate: *peer_certificate,
        ..Default::default()
    })
}

fn over_http(
    backend: &str,
    timeout_ms: u64,
    http: &ExternalAuthHttp,
    no_response_headers: bool,
) -> Result<ExtAuthz, String> {
    let service = http_service(backend, timeout_ms, http, no_response_headers)?;
    Ok(ExtAuthz {
        services: Some(service),
        allowed_headers: if http.subrequest {
            Some(matching(".+"))
        } else {
            named(&http.request_headers)?
        },
        disallowed_headers: http.subrequest.then(|| matching(UNSENT_HEADERS)),
        ..Default::default()
    })
}

fn grpc_service(backend: &str, timeout_ms: u64) -> Services {
    Services::GrpcService(GrpcService {
        timeout: wrappers::milliseconds(timeout_ms),
        ..collectors::service(backend)
    })
}

fn http_service(
    backend: &str,
    timeout_ms: u64,
    http: &ExternalAuthHttp,
    no_response_headers: bool,
) -> Result<Services, String> {
    let ExternalAuthHttp {
        path_prefix,
        // Set on the filter, not on the HTTP service. Check the names, because a client must not
        // control how requests to the service are framed.
        request_headers,
        response_headers,
        path,
        subrequest,
    } = http;
    for name in request_headers {
        headers::check_writable(name).map_err(|why| format!("header `{name}`: {why}"))?;
    }
    headers::check_target(path_prefix).map_err(|why| format!("path prefix: {why}"))?;
    if !(path_prefix.is_empty() || path_prefix.starts_with('/')) {
        return Err(format!("path prefix `{path_prefix}` must start with `/`"));
    }
    headers::check_target(path).map_err(|why| format!("path: {why}"))?;
    if !(path.is_empty() || path.starts_with('/') && path_prefix.is_empty()) {
        return Err(format!(
            "path `{path}`: expected `/` at the beginning, and an empty path prefix"
        ));
    }
    let all_but_time = || ListStringMatcher {
        patterns: vec![wrappers::matching_none_of(&[SERVICE_TIME])],
    };
    let copied = match named(response_headers)? {
        None if no_response_headers => None,
        // The mutation rules reject forbidden headers.
        None => Some(all_but_time()),
        some => some,
    };
    let description = DESCRIPTION.iter().map(|(name, format)| HeaderValue {
        key: (*name).to_owned(),
        value: (*format).to_owned(),
        ..Default::default()
    });
    Ok(Services::HttpService(HttpService {
        server_uri: Some(HttpUri {
            // Envoy requires this field but does not use it. Requests keep the client's host.
            uri: format!("http://{}", collectors::host(backend)),
            timeout: wrappers::milliseconds(timeout_ms),
            http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(backend.to_owned())),
        }),
        path_prefix: path_prefix.clone(),
        path_override: path.clone(),
        authorization_request: subrequest.then(|| AuthorizationRequest {
            headers_to_add: description.collect(),
            ..Default::default()
        }),
        authorization_response: Some(AuthorizationResponse {
            allowed_upstream_headers: copied,
            allowed_client_headers: Some(all_but_time()),
            allowed_client_headers_on_success: subrequest.then(|| ListStringMatcher {
                patterns: vec![wrappers::exact("set-cookie")],
            }),
            ..Default::default()
        }),
        ..Default::default()
    }))
}

fn matching(pattern: &str) -> ListStringMatcher {
    ListStringMatcher {
        patterns: vec![wrappers::matching(pattern)],
    }
}

fn named(names: &[String]) -> Result<Option<ListStringMatcher>, String> {
    let mut patterns: Vec<StringMatcher> = Vec::with_capacity(names.len());
    for name in names {
        headers::check_name(name).map_err(|why| format!("header `{name}`: {why}"))?;
        patterns.push(wrappers::exact(name.to_ascii_lowercase()));
    }
    Ok((!patterns.is_empty()).then_some(ListStringMatcher { patterns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(http: &ExternalAuthHttp) -> Result<HttpService, String> {
        match http_service("Service/web/auth/80", TIMEOUT_MS, http, http.subrequest)? {
            Services::HttpService(service) => Ok(service),
            Services::GrpcService(_) => Err("the protocol is gRPC".to_owned()),
        }
    }

    fn subrequest(path: &str) -> ExternalAuthHttp {
        ExternalAuthHttp {
            path: path.to_owned(),
            subrequest: true,
            ..Default::default()
        }
    }

    #[test]
    fn subrequests_have_fixed_path_and_describe_request() {
        let service = service(&subrequest("/auth?group=a")).unwrap();
        assert_eq!(service.path_override, "/auth?group=a");
        let added = service.authorization_request.unwrap().headers_to_add;
        let names: Vec<&str> = added.iter().map(|header| header.key.as_str()).collect();
        assert_eq!(names, DESCRIPTION.map(|(name, _)| name));
        let response = service.authorization_response.unwrap();
        assert_eq!(response.allowed_upstream_headers, None);
        assert!(response.allowed_client_headers_on_success.is_some());
    }

    #[test]
    fn other_requests_copy_headers_and_describe_nothing() {
        let service = service(&ExternalAuthHttp::default()).unwrap();
        assert_eq!(service.path_override, "");
        assert_eq!(service.authorization_request, None);
        let response = service.authorization_response.unwrap();
        assert!(response.allowed_upstream_headers.is_some());
        assert_eq!(response.allowed_client_headers_on_success, None);
    }

    #[test]
    fn paths_that_envoy_rejects_are_refused() {
        for path in ["auth", "/a b", "/a\r\nb"] {
            assert!(service(&subrequest(path)).is_err(), "{path}");
        }
        let both = ExternalAuthHttp {
            path_prefix: "/check".to_owned(),
            ..subrequest("/auth")
        };
        assert!(service(&both).is_err());
    }
}
