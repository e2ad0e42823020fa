//! `HTTPProxy` in `projectcontour.io/v1`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Object, ProxyAuthPolicy, ProxyAuthorization, ProxyCookieRewrite, ProxyDescriptor,
    ProxyHealthCheck, ProxyJwtProvider, ProxyJwtVerification, ProxyLoadBalancer, ProxyService,
    ProxyTcp, ProxyTls,
};

/// `HTTPProxy` v1.
pub type HttpProxy = Object<HttpProxySpec>;

/// `HTTPProxySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpProxySpec {
    /// The virtual host, which makes this HTTPProxy a root. Without a virtual host, an HTTPProxy is
    /// served only if another HTTPProxy includes it.
    pub virtualhost: Option<ProxyHost>,
    /// The routes.
    pub routes: Vec<ProxyRoute>,
    /// TCP proxying on the virtual host's TLS port, instead of HTTP routing.
    pub tcpproxy: Option<ProxyTcp>,
    /// Other HTTPProxies whose routes this one includes.
    pub includes: Vec<ProxyInclude>,
    /// Name of the class; annotations take precedence.
    pub ingress_class_name: Option<Box<str>>,
}

impl HttpProxySpec {
    /// Returns the Services that the routes and `tcpproxy` reference.
    pub fn services(&self) -> impl Iterator<Item = &ProxyService> {
        let route_services = self.routes.iter().flat_map(|route| &route.services);
        let tcp_services = self.tcpproxy.iter().flat_map(|tcp| &tcp.services);
        route_services.chain(tcp_services)
    }
}

/// `VirtualHost`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHost {
    /// The hostname; a leading `*.` matches exactly one label.
    pub fqdn: String,
    /// TLS settings.
    pub tls: Option<ProxyTls>,
    /// External authorization of requests; needs `tls`.
    pub authorization: Option<ProxyAuthorization>,
    /// CORS for all routes.
    pub cors_policy: Option<ProxyCors>,
    /// Rate limits.
    pub rate_limit_policy: Option<ProxyRateLimits>,
    /// JWT providers, which issue tokens.
    pub jwt_providers: Vec<ProxyJwtProvider>,
    /// Client addresses that may send requests.
    pub ip_allow_policy: Vec<ProxyAddressRange>,
    /// Client addresses that may not send requests.
    pub ip_deny_policy: Vec<ProxyAddressRange>,
}

/// `CORSPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyCors {
    /// True if requests may include credentials.
    pub allow_credentials: bool,
    /// Allowed origins: `*`, exact origins, or RE2 expressions that match whole origins.
    pub allow_origin: Vec<String>,
    /// Allowed methods.
    pub allow_methods: Vec<String>,
    /// Allowed request headers.
    pub allow_headers: Vec<String>,
    /// Response headers that scripts may read.
    pub expose_headers: Vec<String>,
    /// How long preflight responses may be cached, as a Go duration; 0 disables caching.
    pub max_age: String,
    /// True if public websites may send requests to private networks.
    pub allow_private_network: bool,
}

/// `Include`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyInclude {
    /// Name of the proxy.
    pub name: String,
    /// Namespace of the proxy; defaults to the namespace of the including proxy.
    pub namespace: String,
    /// Conditions that requests must meet in addition to the included routes' conditions.
    pub conditions: Vec<ProxyCondition>,
}

/// `MatchCondition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyCondition {
    /// Prefix of the path.
    pub prefix: String,
    /// The exact path.
    pub exact: String,
    /// RE2 expression that matches the whole path.
    pub regex: String,
    /// Header condition.
    pub header: Option<ProxyHeaderCondition>,
    /// Query parameter condition.
    pub query_parameter: Option<ProxyQueryCondition>,
}

/// `HeaderMatchCondition`.
#[expect(clippy::struct_excessive_bools, reason = "as the API has them")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHeaderCondition {
    /// The name.
    pub name: String,
    /// True if the header must be present.
    pub present: bool,
    /// True if the header must be absent.
    pub notpresent: bool,
    /// Substring of the value.
    pub contains: String,
    /// Substring that the value must not contain.
    pub notcontains: String,
    /// If true, ignores case.
    pub ignore_case: bool,
    /// The exact value.
    pub exact: String,
    /// A value that the header must not have.
    pub notexact: String,
    /// RE2 expression that matches the whole value.
    pub regex: String,
    /// If true, treats a missing header as empty, for `notexact` and `notcontains`.
    pub treat_missing_as_empty: bool,
}

/// `QueryParameterMatchCondition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyQueryCondition {
    /// The name.
    pub name: String,
    /// The exact value.
    pub exact: String,
    /// Prefix of the value.
    pub prefix: String,
    /// Suffix of the value.
    pub suffix: String,
    /// RE2 expression that matches the whole value.
    pub regex: String,
    /// Substring of the value.
    pub contains: String,
    /// If true, ignores case.
    pub ignore_case: bool,
    /// True if the parameter must be present.
    pub present: bool,
}

/// `Route`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyRoute {
    /// Conditions that requests must meet.
    pub conditions: Vec<ProxyCondition>,
    /// The Services that receive the requests.
    pub services: Vec<ProxyService>,
    /// Has no effect: all routes support WebSockets.
    pub enable_websockets: bool,
    /// If true, serves plaintext requests even if the root has TLS.
    pub permit_insecure: bool,
    /// Overrides the root's authorization. An empty policy enables it.
    pub auth_policy: Option<ProxyAuthPolicy>,
    /// Timeouts.
    pub timeout_policy: Option<ProxyTimeouts>,
    /// Retries.
    pub retry_policy: Option<ProxyRetry>,
    /// Endpoint health checks.
    pub health_check_policy: Option<ProxyHealthCheck>,
    /// Load balancing across endpoints.
    pub load_balancer_policy: Option<ProxyLoadBalancer>,
    /// Replacement of the path prefix.
    pub path_rewrite_policy: Option<ProxyPathRewrite>,
    /// Request header modifications.
    pub request_headers_policy: Option<ProxyHeaders>,
    /// Response header modifications.
    pub response_headers_policy: Option<ProxyHeaders>,
    /// Changes to cookies. Not supported, so they have no effect.
    pub cookie_rewrite_policies: Vec<ProxyCookieRewrite>,
    /// Rate limits.
    pub rate_limit_policy: Option<ProxyRateLimits>,
    /// A redirect, instead of forwarding to Services.
    pub request_redirect_policy: Option<ProxyRedirect>,
    /// A direct response, instead of forwarding to Services.
    pub direct_response_policy: Option<ProxyDirectResponse>,
    /// Redirects from Services that Envoy follows instead of passing them to the client.
    pub internal_redirect_policy: Option<ProxyInternalRedirect>,
    /// The JWT that the route requires.
    pub jwt_verification_policy: Option<ProxyJwtVerification>,
    /// Client addresses that may send requests.
    pub ip_allow_policy: Vec<ProxyAddressRange>,
    /// Client addresses that may not send requests.
    pub ip_deny_policy: Vec<ProxyAddressRange>,
}

/// `IPFilterPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyAddressRange {
    /// `Peer` for the connection's peer address, `Remote` for the client address reported by
    /// proxies.
    pub source: String,
    /// A network in CIDR notation, or an address.
    pub cidr: String,
}

/// `RateLimitPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyRateLimits {
    /// A limit that each Envoy enforces on its own.
    pub local: Option<ProxyLocalRateLimit>,
    /// Limits that a rate limit service enforces.
    pub global: Option<ProxyGlobalRateLimits>,
}

/// `LocalRateLimitPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyLocalRateLimit {
    /// Number of requests allowed per `unit`.
    pub requests: i64,
    /// Unit of time: `second`, `minute` or `hour`.
    pub unit: String,
    /// Number of additional requests allowed in a burst.
    pub burst: i64,
    /// Status for rejected requests; 429 if unset.
    pub response_status_code: Option<i64>,
    /// Headers to add to the responses for rejected requests.
    pub response_headers_to_add: Vec<ProxyHeader>,
}

/// `GlobalRateLimitPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyGlobalRateLimits {
    /// If true, disables the virtual host's descriptors.
    pub disabled: bool,
    /// Descriptors that replace the virtual host's. They need `spec.ingress.rateLimitService` of
    /// the configuration; without it, the routes respond with an error.
    pub descriptors: Vec<ProxyDescriptor>,
}

/// `TimeoutPolicy`. Values are Go durations or `infinity`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyTimeouts {
    /// Timeout for the whole response; 15 seconds if empty.
    pub response: String,
    /// Timeout without data in either direction. If empty, the Gateway's setting applies.
    pub idle: String,
    /// Timeout for idle connections to backends; one hour if empty.
    pub idle_connection: String,
}

/// `RetryPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyRetry {
    /// Number of retries; -1 means none, and 0 means one.
    #[serde(rename = "count")]
    pub number: i32,
    /// Timeout for each attempt.
    pub per_try_timeout: String,
    /// Envoy retry conditions; `5xx` if empty.
    pub retry_on: Vec<String>,
    /// Statuses to retry, if `retryOn` contains `retriable-status-codes`.
    pub retriable_status_codes: Vec<i32>,
}

/// `PathRewritePolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyPathRewrite {
    /// Path prefixes and their replacements.
    pub replace_prefix: Vec<ProxyReplacePrefix>,
}

/// `ReplacePrefix`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyReplacePrefix {
    /// The full prefix to replace, including the prefixes of all includes. If empty, any prefix is
    /// replaced.
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
    /// Target scheme: `http` or `https`.
    pub scheme: Option<Box<str>>,
    /// Target host.
    pub hostname: Option<Box<str>>,
    /// Target port.
    pub port: Option<i32>,
    /// HTTP status: 301, 302 (the default), 303, 307 or 308.
    pub status_code: Option<i32>,
    /// The new path.
    pub path: Option<Box<str>>,
    /// The new path prefix.
    pub prefix: Option<Box<str>>,
}

/// `HTTPInternalRedirectPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyInternalRedirect {
    /// Maximum number of redirects per request; 0 means 1.
    pub max_internal_redirects: i32,
    /// Statuses of redirects to follow: 301, 302 (the default), 303, 307 or 308.
    pub redirect_response_codes: Vec<i32>,
    /// Whether to follow redirects to a different scheme: `Always`, `Never` (the default) or
    /// `SafeOnly`.
    pub allow_cross_scheme_redirect: String,
    /// If true, passes a redirect to the client if it leads to the same route as an earlier
    /// redirect.
    pub deny_repeated_route_redirect: bool,
}

/// `HTTPDirectResponsePolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyDirectResponse {
    /// HTTP status, 200 to 599.
    pub status_code: i32,
    /// Response body of at most 4096 bytes.
    pub body: String,
}
