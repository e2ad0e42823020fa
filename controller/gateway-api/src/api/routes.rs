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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RouteSpec<R> {
    /// The Gateways and ListenerSets that the route attaches to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub parent_refs: Vec<ParentRef>,
    /// Experimental: attach to default Gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_default_gateways: Option<String>,
    /// Hostnames; none for `TCPRoute` and `UDPRoute`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub hostnames: Vec<String>,
    /// The rules. An `HTTPRoute` without any gets one that matches every path, by CRD default.
    #[serde(deserialize_with = "super::exact::vec")]
    #[serde(bound(deserialize = "R: Deserialize<'de>"))]
    pub rules: Vec<R>,
}

impl<R> Default for RouteSpec<R> {
    fn default() -> Self {
        Self {
            parent_refs: Vec::new(),
            use_default_gateways: None,
            hostnames: Vec::new(),
            rules: Vec::new(),
        }
    }
}

/// `ParentReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// The Gateway API group when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Gateway when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The route's namespace when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// One listener by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    /// The listeners of one port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// `HTTPRouteRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpRule {
    /// The rule's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Any of these; every request when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub matches: Vec<HttpMatch>,
    /// Filters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub filters: Vec<Filter>,
    /// Backends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub backend_refs: Vec<BackendRef>,
    /// Timeouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Box<Timeouts>>,
    /// Experimental: retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<Retry>>,
    /// Experimental: session persistence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<Box<SessionPersistence>>,
}

/// `GRPCRouteRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrpcRule {
    /// The rule's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Any of these; every request when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub matches: Vec<GrpcMatch>,
    /// Filters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub filters: Vec<Filter>,
    /// Backends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub backend_refs: Vec<BackendRef>,
    /// Experimental: session persistence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<Box<SessionPersistence>>,
}

/// The rule of a `TLSRoute`, `TCPRoute` or `UDPRoute`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct L4Rule {
    /// The rule's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Backends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub backend_refs: Vec<BackendRef>,
}

/// `HTTPRouteMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpMatch {
    /// The path; prefix `/` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// Headers; all must match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub headers: Vec<StringMatch>,
    /// Query parameters; all must match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub query_params: Vec<StringMatch>,
    /// The method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
}

/// `HTTPPathMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PathMatch {
    /// `PathPrefix` when absent.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<PathMatchType>,
    /// `/` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// `HTTPHeaderMatch`, `HTTPQueryParamMatch` and `GRPCHeaderMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StringMatch {
    /// Exact when absent.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<StringMatchType>,
    /// The header's or parameter's name.
    pub name: String,
    /// The value or the expression.
    pub value: String,
}

/// `GRPCRouteMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrpcMatch {
    /// Service and method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<GrpcMethodMatch>,
    /// Headers; all must match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub headers: Vec<StringMatch>,
}

/// `GRPCMethodMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GrpcMethodMatch {
    /// Exact when absent.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<StringMatchType>,
    /// The service; every one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The method; every one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
}

/// `BackendRef`, `HTTPBackendRef`, `GRPCBackendRef`, and, without weight and filters,
/// `BackendObjectReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendRef {
    /// The core group when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Service when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The name.
    pub name: String,
    /// The route's namespace when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The port of the Service; required for Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Filters for this backend only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub filters: Vec<Filter>,
}

/// `HTTPRouteTimeouts`; values are GEP-2257 durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Timeouts {
    /// For the whole request with its retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// For one try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_request: Option<String>,
}

/// `HTTPRouteRetry`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Retry {
    /// Exactly the statuses that are retried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub codes: Vec<i32>,
    /// Retries, not tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// The minimum pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<String>,
}

/// `SessionPersistence`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionPersistence {
    /// The cookie's or header's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// The longest time that a session lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absolute_timeout: Option<String>,
    /// Cookie or Header.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Cookie details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie_config: Option<CookieConfig>,
}

/// `CookieConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CookieConfig {
    /// Session or Permanent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_type: Option<String>,
}
