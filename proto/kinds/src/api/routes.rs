//! The five route kinds. They share one specification; only the rules differ.

use serde::{Deserialize, Serialize};

use super::{Filter, Object, PathMatchType, StringMatchType};

/// `HTTPRoute` v1.
pub type HttpRoute = Object<RouteSpec<HttpRule>>;
/// `GRPCRoute` v1.
pub type GrpcRoute = Object<RouteSpec<GrpcRule>>;
/// `TLSRoute` v1.
pub type TlsRoute = Object<RouteSpec<L4Rule>>;
/// `TCPRoute` v1.
pub type TcpRoute = Object<RouteSpec<L4Rule>>;
/// `UDPRoute` v1.
pub type UdpRoute = Object<RouteSpec<L4Rule>>;

/// The specification that all route kinds share, apart from the type of their rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RouteSpec<R> {
    /// The Gateways and ListenerSets to which the route attaches.
    pub parent_refs: Vec<ParentRef>,
    /// Experimental: also attaches the route to the default Gateways of this scope.
    pub use_default_gateways: Option<Box<str>>,
    /// Hostnames that requests must match. `TCPRoute` and `UDPRoute` have no hostnames.
    pub hostnames: Vec<String>,
    /// The rules. If an `HTTPRoute` has no rules, its CRD adds one that matches every path.
    pub rules: Vec<R>,
}

/// `ParentReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// API group; the Gateway API group if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Box<str>>,
    /// Kind; Gateway if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Box<str>>,
    /// Namespace; the route's namespace if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Box<str>>,
    /// The name.
    pub name: String,
    /// Name of a listener. If set, the route attaches only to this listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<Box<str>>,
    /// Listener port. If set, the route attaches only to listeners with this port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// `HTTPRouteRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpRule {
    /// The rule's name.
    pub name: Option<Box<str>>,
    /// Matches. A request must satisfy one of them. If empty, every request matches.
    pub matches: Vec<HttpMatch>,
    /// Filters.
    pub filters: Vec<Filter>,
    /// Backends.
    pub backend_refs: Vec<BackendRef>,
    /// Timeouts.
    pub timeouts: Option<Box<Timeouts>>,
    /// Experimental: retries.
    pub retry: Option<Box<Retry>>,
    /// Experimental: session persistence.
    pub session_persistence: Option<Box<SessionPersistence>>,
}

/// `GRPCRouteRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrpcRule {
    /// The rule's name.
    pub name: Option<Box<str>>,
    /// Matches. A request must satisfy one of them. If empty, every request matches.
    pub matches: Vec<GrpcMatch>,
    /// Filters.
    pub filters: Vec<Filter>,
    /// Backends.
    pub backend_refs: Vec<BackendRef>,
    /// Experimental: session persistence.
    pub session_persistence: Option<Box<SessionPersistence>>,
}

/// The rule of a `TLSRoute`, `TCPRoute` or `UDPRoute`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct L4Rule {
    /// The rule's name.
    pub name: Option<Box<str>>,
    /// Backends.
    pub backend_refs: Vec<BackendRef>,
}

/// `HTTPRouteMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpMatch {
    /// The path to match. If unset, every path matches.
    pub path: Option<PathMatch>,
    /// Headers that must all match.
    pub headers: Vec<StringMatch>,
    /// Query parameters that must all match.
    pub query_params: Vec<StringMatch>,
    /// Required request method.
    pub method: Option<Box<str>>,
}

/// `HTTPPathMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PathMatch {
    /// Type of the match; `PathPrefix` if unset.
    #[serde(rename = "type")]
    pub type_: Option<PathMatchType>,
    /// The path, prefix or regular expression; `/` if unset.
    pub value: Option<Box<str>>,
}

/// `HTTPHeaderMatch`, `HTTPQueryParamMatch` and `GRPCHeaderMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StringMatch {
    /// Type of the match; `Exact` if unset.
    #[serde(rename = "type")]
    pub type_: Option<StringMatchType>,
    /// Name of the header or query parameter.
    pub name: String,
    /// The value or the regular expression.
    pub value: String,
}

/// `GRPCRouteMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrpcMatch {
    /// Service and method.
    pub method: Option<GrpcMethodMatch>,
    /// Headers that must all match.
    pub headers: Vec<StringMatch>,
}

/// `GRPCMethodMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrpcMethodMatch {
    /// Type of the match; `Exact` if unset.
    #[serde(rename = "type")]
    pub type_: Option<StringMatchType>,
    /// The service; any service if unset.
    pub service: Option<Box<str>>,
    /// The method; any method if unset.
    pub method: Option<Box<str>>,
}

/// `BackendRef`, `HTTPBackendRef` and `GRPCBackendRef`. Also `BackendObjectReference`, which has
/// neither weight nor filters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendRef {
    /// API group; core if unset.
    pub group: Option<Box<str>>,
    /// Kind; Service if unset.
    pub kind: Option<Box<str>>,
    /// The name.
    pub name: String,
    /// Namespace; the route's namespace if unset.
    pub namespace: Option<Box<str>>,
    /// Port of the backend; required for Services.
    pub port: Option<i32>,
    /// Weight; 1 if unset.
    pub weight: Option<i32>,
    /// Filters for requests to this backend only.
    #[serde(default)]
    pub filters: Vec<Filter>,
}

/// `HTTPRouteTimeouts`; values are GEP-2257 durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Timeouts {
    /// Timeout for the whole request, including retries.
    pub request: Option<Box<str>>,
    /// Timeout for one attempt.
    pub backend_request: Option<Box<str>>,
}

/// `HTTPRouteRetry`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Retry {
    /// Statuses to retry. Responses with other statuses are not retried.
    pub codes: Vec<i32>,
    /// Maximum number of retries, in addition to the first attempt.
    pub attempts: Option<i32>,
    /// Minimum delay before each retry.
    pub backoff: Option<Box<str>>,
}

/// `SessionPersistence`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionPersistence {
    /// Name of the cookie or header. Exists only in Gateway API up to v1.6.
    pub session_name: Option<Box<str>>,
    /// Maximum lifetime of a session.
    pub absolute_timeout: Option<Box<str>>,
    /// How the session is tracked: `Cookie` or `Header`.
    #[serde(rename = "type")]
    pub type_: Option<Box<str>>,
    /// Settings for the cookie. Exists only in Gateway API up to v1.6.
    pub cookie_config: Option<CookieConfig>,
    /// Settings for type `Cookie`. Requires Gateway API v1.7 or later.
    pub cookie: Option<SessionCookie>,
    /// Settings for type `Header`. Requires Gateway API v1.7 or later.
    pub header: Option<SessionHeader>,
}

/// `SessionCookieConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionCookie {
    /// Name of the cookie. If unset, the name is specific to the rule.
    pub name: Option<Box<str>>,
    /// Path for which browsers send the cookie; `/` if unset.
    pub path: Option<Box<str>>,
    /// Lifetime of the cookie: `Session` or `Permanent`.
    pub lifetime_type: Option<Box<str>>,
}

/// `SessionHeaderConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionHeader {
    /// Name of the header.
    pub name: String,
}

/// `CookieConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CookieConfig {
    /// Lifetime of the cookie: `Session` or `Permanent`.
    pub lifetime_type: Option<Box<str>>,
}
