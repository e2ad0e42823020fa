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

/// The specification of a route of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RouteSpec<R> {
    /// The Gateways and ListenerSets that the route attaches to.
    pub parent_refs: Vec<ParentRef>,
    /// Experimental: attach to default Gateways.
    pub use_default_gateways: Option<Box<str>>,
    /// Hostnames; unused by `TCPRoute` and `UDPRoute`.
    pub hostnames: Vec<String>,
    /// The rules. By CRD default, an `HTTPRoute` without rules gets one that matches every path.
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
    /// Name of the only listener to attach to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<Box<str>>,
    /// Port of the only listeners to attach to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// `HTTPRouteRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpRule {
    /// The rule's name.
    pub name: Option<Box<str>>,
    /// Alternative matches; if empty, every request matches.
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
    /// Alternative matches; if empty, every request matches.
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
    /// The path; prefix `/` if unset.
    pub path: Option<PathMatch>,
    /// Headers; all must match.
    pub headers: Vec<StringMatch>,
    /// Query parameters; all must match.
    pub query_params: Vec<StringMatch>,
    /// The method.
    pub method: Option<Box<str>>,
}

/// `HTTPPathMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PathMatch {
    /// Type; `PathPrefix` if unset.
    #[serde(rename = "type")]
    pub type_: Option<PathMatchType>,
    /// Value; `/` if unset.
    pub value: Option<Box<str>>,
}

/// `HTTPHeaderMatch`, `HTTPQueryParamMatch` and `GRPCHeaderMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StringMatch {
    /// Type; Exact if unset.
    #[serde(rename = "type")]
    pub type_: Option<StringMatchType>,
    /// The header's or parameter's name.
    pub name: String,
    /// The value or the expression.
    pub value: String,
}

/// `GRPCRouteMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrpcMatch {
    /// Service and method.
    pub method: Option<GrpcMethodMatch>,
    /// Headers; all must match.
    pub headers: Vec<StringMatch>,
}

/// `GRPCMethodMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrpcMethodMatch {
    /// Type; Exact if unset.
    #[serde(rename = "type")]
    pub type_: Option<StringMatchType>,
    /// The service; any service if unset.
    pub service: Option<Box<str>>,
    /// The method; any method if unset.
    pub method: Option<Box<str>>,
}

/// `BackendRef`, `HTTPBackendRef`, `GRPCBackendRef`, and, without weight and filters,
/// `BackendObjectReference`.
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
    /// The port of the Service; required for Services.
    pub port: Option<i32>,
    /// Weight; 1 if unset.
    pub weight: Option<i32>,
    /// Filters for this backend only.
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
    /// Statuses to retry; no other statuses are retried.
    pub codes: Vec<i32>,
    /// Maximum number of retries, not counting the first attempt.
    pub attempts: Option<i32>,
    /// Minimum pause before a retry.
    pub backoff: Option<Box<str>>,
}

/// `SessionPersistence`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionPersistence {
    /// Name of the cookie or header. Until 1.6.
    pub session_name: Option<Box<str>>,
    /// Maximum lifetime of a session.
    pub absolute_timeout: Option<Box<str>>,
    /// Cookie or Header.
    #[serde(rename = "type")]
    pub type_: Option<Box<str>>,
    /// Cookie details. Until 1.6.
    pub cookie_config: Option<CookieConfig>,
    /// For Cookie. Since 1.7.
    pub cookie: Option<SessionCookie>,
    /// For Header. Since 1.7.
    pub header: Option<SessionHeader>,
}

/// `SessionCookieConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionCookie {
    /// The name; if unset, a name specific to the rule.
    pub name: Option<Box<str>>,
    /// The path for which browsers send the cookie; `/` if unset.
    pub path: Option<Box<str>>,
    /// Session or Permanent.
    pub lifetime_type: Option<Box<str>>,
}

/// `SessionHeaderConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionHeader {
    /// The name.
    pub name: String,
}

/// `CookieConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CookieConfig {
    /// Session or Permanent.
    pub lifetime_type: Option<Box<str>>,
}
