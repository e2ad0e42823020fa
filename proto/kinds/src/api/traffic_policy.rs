//! `TrafficPolicy`: limits and defaults for requests to Gateways, ListenerSets and routes.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    BackendObjectRef, BandwidthLimit, ErrorPage, InjectedFault, LimitHeaders, LimitKeyType,
    LimitMode, LimitPeriod, LimitScope, Object, PolicyHeaders, PolicyTargetRef, RequestBody,
    ResponseCompression,
};

/// `TrafficPolicy` v1alpha1.
pub type TrafficPolicy = Object<TrafficPolicySpec>;

/// Limits and defaults for requests. `rateLimits`, `requestBody` and `bandwidth` of all policies
/// that apply to a rule are enforced together. Every other field comes from the policy nearest to
/// the rule; the rule's own fields take precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficPolicySpec {
    /// Gateways, ListenerSets, HTTPRoutes and GRPCRoutes in the policy's own namespace.
    /// `sectionName` selects a listener or rule.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<PolicyTargetRef>,
    /// Rate limits. Requests that exceed a limit get 429. If a limit is invalid, all requests to
    /// the targets get 500.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub rate_limits: Vec<RequestLimit>,
    /// Timeouts for rules that set none.
    pub timeouts: Option<DefaultTimeouts>,
    /// Retries for rules that set none.
    pub retry: Option<DefaultRetry>,
    /// Limit on request bodies. It does not apply to GRPCRoutes, whose requests are streams. If the
    /// limit is invalid, all requests to the targets get 500.
    pub request_body: Option<RequestBody>,
    /// Bandwidth limit. If the limit is invalid, all requests to the targets get 500.
    pub bandwidth: Option<BandwidthLimit>,
    /// Response compression.
    pub compression: Option<ResponseCompression>,
    /// Pages that replace responses; the first page for a status applies. The other headers of a
    /// replaced response are removed. An empty list disables the pages of broader policies.
    #[schemars(length(max = 8))]
    pub error_pages: Option<Vec<ErrorPage>>,
    /// Header modifications. If they are invalid, all requests to the targets get 500, because
    /// removing a header might be security-relevant.
    pub headers: Option<PolicyHeaders>,
    /// If true, translates gRPC-Web to gRPC. GRPCRoutes then also match gRPC-Web requests.
    pub grpc_web: Option<bool>,
    /// Faults to inject, for testing how clients handle failures.
    pub fault: Option<InjectedFault>,
}

/// Rate limit. Each port enforces the limit separately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestLimit {
    /// Name, unique among the policy's limits.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9-]+$"))]
    pub name: String,
    /// Number of requests allowed per period; required unless `scope` is `Service`.
    #[schemars(range(min = 1))]
    pub requests: Option<i32>,
    /// Period; required unless `scope` is `Service`.
    pub per: Option<LimitPeriod>,
    /// Number of additional requests allowed after an idle period. The default is 0.
    #[schemars(range(min = 0))]
    pub burst: Option<i32>,
    /// Limits each combination of these values separately. Without keys, all requests to a target
    /// share one limit. Requests without a value are counted together, and only the first 512 bytes
    /// of a value count. Clients can choose all values except their address, so add a limit without
    /// keys or by `ClientAddress`.
    #[serde(default)]
    #[schemars(length(max = 4))]
    pub keys: Vec<LimitKey>,
    /// `Host`, the default, gives each gateway host the whole limit. `Fleet` divides the limit evenly
    /// among the Gateway's live hosts, as the controller counts them. Each host's share allows at
    /// least one request at a time. With `Service`, the rate limit service in `service` decides.
    #[serde(default)]
    pub scope: Option<LimitScope>,
    /// Rate limit service; required with scope `Service`, otherwise not allowed. All limits of a
    /// rule must have the same service and domain; otherwise, its requests get 500.
    pub service: Option<LimitService>,
    /// `Enforce`, the default, rejects requests beyond the limit. `Report` lets them pass, and only
    /// counts them in the metric `sesame_gateway_rate_limited_requests_total`. With scope
    /// `Service`, the service learns of requests after their responses, and is the only one to
    /// count them. Such a limit has no effect if another limit of the rule has another service.
    #[serde(default)]
    pub mode: Option<LimitMode>,
    /// Response headers that describe the limit. The default is `Off`. Responses describe at most
    /// one limit: the exceeded limit, or if none is exceeded, the limit with the lowest rate. If
    /// this field of that limit is `Off`, responses have no such headers, even if other limits set
    /// it. Limits with mode `Report` are never described.
    #[serde(default)]
    pub headers: Option<LimitHeaders>,
}

/// Rate limit service with Envoy's protocol, `envoy.service.ratelimit.v3`. It receives the entry
/// `limit` with the value `NAMESPACE/POLICY/LIMIT`, then an entry for each key: `remote_address`,
/// `header:NAME`, `cookie:NAME`, `query_parameter:NAME`, `path` or `method`. Except for addresses,
/// values start with `=`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitService {
    /// The Service, which must accept gRPC. A Service in another namespace requires a
    /// ReferenceGrant.
    pub backend_ref: BackendObjectRef,
    /// The domain sent to the service.
    #[schemars(length(min = 1, max = 256), regex(pattern = "^[^%]+$"))]
    pub domain: String,
    /// Timeout for the service's response, at most `1h`. The default is `1s`.
    #[schemars(length(min = 2, max = 24))]
    pub timeout: Option<String>,
    /// If true, requests pass if the service fails or does not exist. Otherwise, they get 500.
    pub fail_open: Option<bool>,
}

/// Part of a request that serves as a rate limit key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitKey {
    /// Part of the request.
    #[serde(rename = "type")]
    pub type_: LimitKeyType,
    /// Name of the header, cookie or query parameter.
    #[serde(default)]
    #[schemars(length(min = 1, max = 256), regex(pattern = "^[^%]+$"))]
    pub name: Option<String>,
}

/// Timeouts for rules that set none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefaultTimeouts {
    /// Timeout for a request and its response, including retries; `0s` for none.
    #[schemars(length(min = 2, max = 24))]
    pub request: Option<String>,
    /// Timeout for one attempt; `0s` for none.
    #[schemars(length(min = 2, max = 24))]
    pub backend_request: Option<String>,
    /// Maximum time without any request or response data; `0s` for no limit.
    #[schemars(length(min = 2, max = 24))]
    pub stream_idle: Option<String>,
}

/// Retries for rules that set none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefaultRetry {
    /// Response statuses to retry, in addition to failed connections.
    #[serde(default)]
    #[schemars(length(max = 16), inner(range(min = 400, max = 599)))]
    pub codes: Vec<i32>,
    /// Maximum number of retries per request. The default is 1.
    #[schemars(range(min = 0, max = 15))]
    pub attempts: Option<i32>,
    /// Minimum delay before a retry.
    #[schemars(length(min = 2, max = 24))]
    pub backoff: Option<String>,
}
