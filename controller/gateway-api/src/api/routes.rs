//! The five route kinds. They share one specification; only the rule differs.

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
    /// Hostnames; none for `TCPRoute` and `UDPRoute`.
    pub hostnames: Vec<String>,
    /// The rules. An `HTTPRoute` without any gets one that matches every path, by CRD default.
    pub rules: Vec<R>,
}

/// `ParentReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// The Gateway API group when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Box<str>>,
    /// Gateway when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Box<str>>,
    /// The route's namespace when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Box<str>>,
    /// The name.
    pub name: String,
    /// One listener by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<Box<str>>,
    /// The listeners of one port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// `HTTPRouteRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpRule {
    /// The rule's name.
    pub name: Option<Box<str>>,
    /// Any of these; every request when empty.
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
    /// Any of these; every request when empty.
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
    /// The path; prefix `/` when absent.
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
    /// `PathPrefix` when absent.
    #[serde(rename = "type")]
    pub type_: Option<PathMatchType>,
    /// `/` when absent.
    pub value: Option<Box<str>>,
}

/// `HTTPHeaderMatch`, `HTTPQueryParamMatch` and `GRPCHeaderMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StringMatch {
    /// Exact when absent.
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
    /// Exact when absent.
    #[serde(rename = "type")]
    pub type_: Option<StringMatchType>,
    /// The service; every one when absent.
    pub service: Option<Box<str>>,
    /// The method; every one when absent.
    pub method: Option<Box<str>>,
}

/// `BackendRef`, `HTTPBackendRef`, `GRPCBackendRef`, and, without weight and filters,
/// `BackendObjectReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendRef {
    /// The core group when absent.
    pub group: Option<Box<str>>,
    /// Service when absent.
    pub kind: Option<Box<str>>,
    /// The name.
    pub name: String,
    /// The route's namespace when absent.
    pub namespace: Option<Box<str>>,
    /// The port of the Service; required for Services.
    pub port: Option<i32>,
    /// 1 when absent.
    pub weight: Option<i32>,
    /// Filters for this backend only.
    #[serde(default)]
    pub filters: Vec<Filter>,
}

/// `HTTPRouteTimeouts`; values are GEP-2257 durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Timeouts {
    /// For the whole request with its retries.
    pub request: Option<Box<str>>,
    /// For one try.
    pub backend_request: Option<Box<str>>,
}

/// `HTTPRouteRetry`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Retry {
    /// Exactly the statuses that are retried.
    pub codes: Vec<i32>,
    /// Retries, not tries.
    pub attempts: Option<i32>,
    /// The minimum pause.
    pub backoff: Option<Box<str>>,
}

/// `SessionPersistence`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionPersistence {
    /// The cookie's or header's name. Until 1.6.
    pub session_name: Option<Box<str>>,
    /// The longest time that a session lives.
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
    /// The name; one of the rule's own when absent.
    pub name: Option<Box<str>>,
    /// The path that browsers send it for; `/` when absent.
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
