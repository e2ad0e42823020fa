//! `HTTPProxy` of `projectcontour.io/v1`.
//!
//! Fields that Sesame does not serve are only noted: see [`Noted`].

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Noted, Object, ProxyHealthCheck, ProxyLoadBalancer, ProxyService, ProxyTcp, ProxyTls};

/// `HTTPProxy` v1.
pub type HttpProxy = Object<HttpProxySpec>;

/// `HTTPProxySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpProxySpec {
    /// The host of a root; a proxy without it serves only where others include it.
    pub virtualhost: Option<ProxyHost>,
    /// The routes.
    pub routes: Vec<ProxyRoute>,
    /// The connections of the host's TLS port, instead of requests.
    pub tcpproxy: Option<ProxyTcp>,
    /// Other proxies whose routes become part of this one.
    pub includes: Vec<ProxyInclude>,
    /// The class; annotations have precedence.
    pub ingress_class_name: Option<Box<str>>,
}

impl HttpProxySpec {
    /// Returns the Services of requests and of connections.
    pub fn services(&self) -> impl Iterator<Item = &ProxyService> {
        let of_routes = self.routes.iter().flat_map(|route| &route.services);
        let of_connections = self.tcpproxy.iter().flat_map(|tcp| &tcp.services);
        of_routes.chain(of_connections)
    }
}

/// `VirtualHost`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHost {
    /// The host, or `*.` and a name for one more label.
    pub fqdn: String,
    /// TLS.
    pub tls: Option<ProxyTls>,
    /// Not served; protects.
    pub authorization: Option<Noted>,
    /// CORS for all routes.
    pub cors_policy: Option<ProxyCors>,
    /// Limits of requests.
    pub rate_limit_policy: Option<ProxyRateLimits>,
    /// Not served; protects.
    pub jwt_providers: Vec<ProxyJwtProvider>,
    /// Clients that may send requests.
    pub ip_allow_policy: Vec<ProxyAddressRange>,
    /// Clients that may not send requests.
    pub ip_deny_policy: Vec<ProxyAddressRange>,
}

/// `CORSPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyCors {
    /// Requests may have credentials.
    pub allow_credentials: bool,
    /// `*`, origins, or RE2 for whole origins.
    pub allow_origin: Vec<String>,
    /// Methods.
    pub allow_methods: Vec<String>,
    /// Headers that requests may have.
    pub allow_headers: Vec<String>,
    /// Headers that pages may read.
    pub expose_headers: Vec<String>,
    /// Duration of Go for which preflights are cached; 0 for none.
    pub max_age: String,
    /// Pages of public networks may send requests to private ones.
    pub allow_private_network: bool,
}

/// `JWTProvider`, as far as it decides which routes need a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyJwtProvider {
    /// Its name.
    pub name: String,
    /// True if routes need its token unless they say otherwise.
    pub default: bool,
    /// Not read.
    pub issuer: Option<Noted>,
    /// Not read.
    pub audiences: Option<Noted>,
    /// Not read.
    #[serde(rename = "remoteJWKS")]
    pub remote_jwks: Option<Noted>,
    /// Not read.
    #[serde(rename = "localJWKS")]
    pub local_jwks: Option<Noted>,
    /// Not read.
    #[serde(rename = "forwardJWT")]
    pub forward_jwt: Option<Noted>,
}

/// `Include`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyInclude {
    /// Name of the proxy.
    pub name: String,
    /// Namespace of the proxy; the includer's when empty.
    pub namespace: String,
    /// Conditions that requests have to fulfil in addition.
    pub conditions: Vec<ProxyCondition>,
}

/// `MatchCondition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyCondition {
    /// The path begins with this text.
    pub prefix: String,
    /// The whole path.
    pub exact: String,
    /// RE2, for the whole path.
    pub regex: String,
    /// A header.
    pub header: Option<ProxyHeaderCondition>,
    /// A query parameter.
    pub query_parameter: Option<ProxyQueryCondition>,
}

/// `HeaderMatchCondition`.
#[expect(clippy::struct_excessive_bools, reason = "as the API has them")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHeaderCondition {
    /// Its name.
    pub name: String,
    /// The header is there.
    pub present: bool,
    /// The header is not there.
    pub notpresent: bool,
    /// A part of the value.
    pub contains: String,
    /// No part of the value.
    pub notcontains: String,
    /// Case does not matter.
    pub ignore_case: bool,
    /// The whole value.
    pub exact: String,
    /// Another value.
    pub notexact: String,
    /// RE2, for the whole value.
    pub regex: String,
    /// A missing header counts as empty, for `notexact` and `notcontains`.
    pub treat_missing_as_empty: bool,
}

/// `QueryParameterMatchCondition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyQueryCondition {
    /// Its name.
    pub name: String,
    /// The whole value.
    pub exact: String,
    /// The beginning of the value.
    pub prefix: String,
    /// The end of the value.
    pub suffix: String,
    /// RE2, for the whole value.
    pub regex: String,
    /// A part of the value.
    pub contains: String,
    /// Case does not matter.
    pub ignore_case: bool,
    /// The parameter is there.
    pub present: bool,
}

/// `Route`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyRoute {
    /// Conditions that requests have to fulfil.
    pub conditions: Vec<ProxyCondition>,
    /// The Services that get the requests.
    pub services: Vec<ProxyService>,
    /// All routes serve WebSockets.
    pub enable_websockets: bool,
    /// True if plain text is served although the root has TLS.
    pub permit_insecure: bool,
    /// Which routes need the root's authorization.
    pub auth_policy: Option<ProxyAuthPolicy>,
    /// Timeouts.
    pub timeout_policy: Option<ProxyTimeouts>,
    /// Retries.
    pub retry_policy: Option<ProxyRetry>,
    /// Checks of endpoints.
    pub health_check_policy: Option<ProxyHealthCheck>,
    /// How endpoints are chosen.
    pub load_balancer_policy: Option<ProxyLoadBalancer>,
    /// A new prefix of the path.
    pub path_rewrite_policy: Option<ProxyPathRewrite>,
    /// Changes of request headers.
    pub request_headers_policy: Option<ProxyHeaders>,
    /// Changes of response headers.
    pub response_headers_policy: Option<ProxyHeaders>,
    /// Not served.
    pub cookie_rewrite_policies: Vec<Noted>,
    /// Limits of requests.
    pub rate_limit_policy: Option<ProxyRateLimits>,
    /// A redirect, instead of Services.
    pub request_redirect_policy: Option<ProxyRedirect>,
    /// An answer, instead of Services.
    pub direct_response_policy: Option<ProxyDirectResponse>,
    /// Redirects by Services that are not passed to the client.
    pub internal_redirect_policy: Option<ProxyInternalRedirect>,
    /// Which provider's token the route needs.
    pub jwt_verification_policy: Option<ProxyJwtVerification>,
    /// Clients that may send requests.
    pub ip_allow_policy: Vec<ProxyAddressRange>,
    /// Clients that may not send requests.
    pub ip_deny_policy: Vec<ProxyAddressRange>,
}

/// `IPFilterPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyAddressRange {
    /// `Peer` for the other end of the connection, `Remote` for the client that proxies report.
    pub source: String,
    /// Network, or an address.
    pub cidr: String,
}

/// `RateLimitPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyRateLimits {
    /// A limit that each proxy counts.
    pub local: Option<ProxyLocalRateLimit>,
    /// Limits that a service counts.
    pub global: Option<ProxyGlobalRateLimits>,
}

/// `LocalRateLimitPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyLocalRateLimit {
    /// Number of requests in each unit of time.
    pub requests: i64,
    /// `second`, `minute` or `hour`.
    pub unit: String,
    /// Number of additional requests.
    pub burst: i64,
    /// Status of refused requests; 429 when absent.
    pub response_status_code: Option<i64>,
    /// Headers of responses to refused requests.
    pub response_headers_to_add: Vec<ProxyHeader>,
}

/// `GlobalRateLimitPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyGlobalRateLimits {
    /// True if the descriptors of the virtual host do not apply.
    pub disabled: bool,
    /// Not served; protect.
    pub descriptors: Vec<Noted>,
}

/// `AuthorizationPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyAuthPolicy {
    /// True if no authorization is needed.
    pub disabled: bool,
    /// Not read.
    pub context: Option<Noted>,
}

/// `JWTVerificationPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyJwtVerification {
    /// The provider.
    pub require: String,
    /// True if no token is needed.
    pub disabled: bool,
}

/// `TimeoutPolicy`. Durations of Go, or `infinity`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyTimeouts {
    /// For the whole response; 15 seconds when empty.
    pub response: String,
    /// Without data in either direction; the Gateway's setting when empty.
    pub idle: String,
    /// For unused connections to backends; an hour when empty.
    pub idle_connection: String,
}

/// `RetryPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyRetry {
    /// Number of retries: -1 for none, 0 for one.
    #[serde(rename = "count")]
    pub number: i32,
    /// Duration of one attempt.
    pub per_try_timeout: String,
    /// Envoy's conditions; `5xx` when empty.
    pub retry_on: Vec<String>,
    /// Statuses, with `retriable-status-codes`.
    pub retriable_status_codes: Vec<i32>,
}

/// `PathRewritePolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyPathRewrite {
    /// Replacements by prefix.
    pub replace_prefix: Vec<ProxyReplacePrefix>,
}

/// `ReplacePrefix`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyReplacePrefix {
    /// The full prefix, which starts with the prefixes of the includes; any when empty.
    pub prefix: String,
    /// The new prefix.
    pub replacement: String,
}

/// `HeadersPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHeaders {
    /// Headers to set.
    pub set: Vec<ProxyHeader>,
    /// Names of headers to remove.
    pub remove: Vec<String>,
}

/// `HeaderValue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHeader {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// `HTTPRequestRedirectPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyRedirect {
    /// `http` or `https`.
    pub scheme: Option<Box<str>>,
    /// The host.
    pub hostname: Option<Box<str>>,
    /// The port.
    pub port: Option<i32>,
    /// 301, 302 (the default), 303, 307 or 308.
    pub status_code: Option<i32>,
    /// A new path.
    pub path: Option<Box<str>>,
    /// A new prefix of the path.
    pub prefix: Option<Box<str>>,
}

/// `HTTPInternalRedirectPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyInternalRedirect {
    /// Largest number of redirects of a request; 0 for one.
    pub max_internal_redirects: i32,
    /// 301, 302 (the default), 303, 307 or 308.
    pub redirect_response_codes: Vec<i32>,
    /// `Always`, `Never` (the default) or `SafeOnly`.
    pub allow_cross_scheme_redirect: String,
    /// True to pass a redirect that leads to the same route as an earlier one.
    pub deny_repeated_route_redirect: bool,
}

/// `HTTPDirectResponsePolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyDirectResponse {
    /// 200 to 599.
    pub status_code: i32,
    /// Text of at most 4096 bytes.
    pub body: String,
}
