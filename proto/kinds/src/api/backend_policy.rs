//! `BackendPolicy`: how requests and connections reach the endpoints of a Service or XBackend.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{BalancerType, Object, PolicyTargetRef, ProxyProtocolVersion, RequestKey};

/// `BackendPolicy` v1alpha1.
pub type BackendPolicy = Object<BackendPolicySpec>;

/// Settings for all traffic to a backend, regardless of the route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendPolicySpec {
    /// Services, or their named ports, and XBackends in the policy's own namespace. A policy for a
    /// port replaces the Service's policy for that port. If several policies have the same target,
    /// only the oldest applies.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<PolicyTargetRef>,
    /// Load balancing across endpoints. The default is round robin.
    pub load_balancer: Option<BalancerSettings>,
    /// Endpoint health checks. Disabled by default.
    pub health_check: Option<HealthSettings>,
    /// Limits that each gateway host enforces independently.
    pub circuit_breaker: Option<BreakerSettings>,
    /// Connections to endpoints.
    pub connection: Option<ConnectionSettings>,
}

/// Load balancing across endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BalancerSettings {
    /// Strategy. RingHash and Maglev send requests with equal `hash` values to one endpoint.
    #[serde(rename = "type")]
    pub type_: BalancerType,
    /// Request values that RingHash and Maglev hash. A request with none of them gets a random
    /// endpoint. For non-HTTP connections, only ClientAddress is available.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub hash: Vec<RequestKey>,
    /// Gradually increases the traffic to new endpoints; only for RoundRobin and LeastRequest.
    pub slow_start: Option<SlowStartSettings>,
    /// Prefers endpoints in the zone of the gateway host. Without healthy ones, all endpoints get
    /// traffic. Also enabled by `trafficDistribution` of a Service.
    pub zone_preference: Option<ZoneSettings>,
}

/// Preference for endpoints in the zone of the gateway host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneSettings {
    /// Number of endpoints in the zone below which all endpoints are equal. The default is 1.
    #[schemars(range(min = 1, max = 1000))]
    pub min_endpoints: Option<i32>,
}

/// Gradual increase of traffic to new endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlowStartSettings {
    /// Time until a new endpoint receives its full share of traffic, from `1ms` to `24h`.
    #[schemars(length(min = 2, max = 24))]
    pub window: String,
    /// Initial share in percent. The default is 10.
    #[schemars(range(min = 0, max = 100))]
    pub min_weight_percent: Option<i32>,
}

/// Endpoint health checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthSettings {
    /// Checks that the gateway performs.
    pub active: Option<ActiveCheck>,
    /// Ejects endpoints based on their responses to client requests.
    pub passive: Option<PassiveCheck>,
    /// If at most this percentage of endpoints is healthy, all endpoints get requests, because the
    /// health checks are probably wrong. The default is 50; 0 disables the threshold.
    #[schemars(range(min = 0, max = 100))]
    pub panic_threshold: Option<i32>,
}

/// Checks that the gateway performs. At most one of `http`, `grpc` and `tcp` may be set; if none is
/// set, an endpoint that accepts a connection is healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveCheck {
    /// GET requests.
    pub http: Option<HttpActiveCheck>,
    /// Calls to `grpc.health.v1.Health`; only for HTTP/2 backends.
    pub grpc: Option<GrpcActiveCheck>,
    /// Check that only opens a connection.
    pub tcp: Option<TcpActiveCheck>,
    /// Port of the endpoints to check. The default is the port that gets requests.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Time between checks, up to `24h`. The default is `5s`.
    #[schemars(length(min = 2, max = 24))]
    pub interval: Option<String>,
    /// Timeout per check, up to `10s`. The default is `1s`.
    #[schemars(length(min = 2, max = 24))]
    pub timeout: Option<String>,
    /// Number of consecutive successes after which an endpoint is healthy again. The default is 2.
    #[schemars(range(min = 1, max = 1000))]
    pub healthy_threshold: Option<i32>,
    /// Number of consecutive failures after which an endpoint is unhealthy. The default is 3.
    #[schemars(range(min = 1, max = 1000))]
    pub unhealthy_threshold: Option<i32>,
}

/// GET requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpActiveCheck {
    /// Path, including any query.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// Host header of the requests. The default is `health-check`.
    #[schemars(length(min = 1, max = 253))]
    pub hostname: Option<String>,
    /// Response statuses that count as healthy. The default is 200.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub statuses: Vec<StatusSpan>,
}

/// Response statuses from `first` to `last`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusSpan {
    /// First status.
    #[schemars(range(min = 100, max = 599))]
    pub first: i32,
    /// Last status. The default is `first`.
    #[schemars(range(min = 100, max = 599))]
    pub last: Option<i32>,
}

/// Calls to `grpc.health.v1.Health`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcActiveCheck {
    /// Name of the service. By default, the server as a whole is checked.
    #[schemars(length(min = 1, max = 1024))]
    pub service: Option<String>,
}

/// Check that only opens a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct TcpActiveCheck {}

/// Ejects endpoints based on their responses to client requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PassiveCheck {
    /// Number of consecutive responses with status 500 or higher, or failed connections, after
    /// which an endpoint is ejected. The default is 5; 0 disables this check.
    #[schemars(range(min = 0, max = 1000))]
    pub consecutive_server_errors: Option<i32>,
    /// Number of consecutive responses with 502, 503 or 504, or failed connections, after which an
    /// endpoint is ejected. The default is 0, which disables this check.
    #[schemars(range(min = 0, max = 1000))]
    pub consecutive_gateway_errors: Option<i32>,
    /// Time between ejection decisions, up to `24h`. The default is `10s`.
    #[schemars(length(min = 2, max = 24))]
    pub interval: Option<String>,
    /// Duration of the first ejection, up to `24h`; later ones are longer. The default is `30s`.
    #[schemars(length(min = 2, max = 24))]
    pub base_ejection_time: Option<String>,
    /// Maximum percentage of endpoints to eject; one endpoint may always be ejected. The default is
    /// 10.
    #[schemars(range(min = 1, max = 100))]
    pub max_ejection_percent: Option<i32>,
}

/// Limits that each gateway host enforces independently. Requests that exceed them get 503.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BreakerSettings {
    /// Maximum number of connections. By default, each backend gets a share of the host's
    /// connection limit, and values above that share have no effect.
    #[schemars(range(min = 1))]
    pub max_connections: Option<i32>,
    /// Maximum number of connections to one endpoint.
    #[schemars(range(min = 1))]
    pub max_connections_per_endpoint: Option<i32>,
    /// Maximum number of requests that wait for a connection.
    #[schemars(range(min = 1))]
    pub max_pending_requests: Option<i32>,
    /// Maximum number of concurrent requests.
    #[schemars(range(min = 1))]
    pub max_requests: Option<i32>,
    /// Maximum number of concurrent retries. Cannot be combined with `retryBudget`.
    #[schemars(range(min = 1))]
    pub max_retries: Option<i32>,
    /// Limit on concurrent retries as a share of requests.
    pub retry_budget: Option<RetryBudgetSettings>,
}

/// Limit on concurrent retries as a share of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryBudgetSettings {
    /// Maximum number of concurrent retries, as a percentage of concurrent requests.
    #[schemars(range(min = 1, max = 100))]
    pub percent: i32,
    /// Number of concurrent retries that are always allowed. The default is 3.
    #[schemars(range(min = 0, max = 1024))]
    pub min_retries: Option<i32>,
}

/// Connections to endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionSettings {
    /// Connect timeout, up to `24h`. The default is `5s`.
    #[schemars(length(min = 2, max = 24))]
    pub timeout: Option<String>,
    /// Time without requests after which an HTTP connection is closed, up to `24h`; `0s` means
    /// never. The default is `1h`.
    #[schemars(length(min = 2, max = 24))]
    pub idle_timeout: Option<String>,
    /// Maximum age of an HTTP connection, up to `24h`. Requests in progress are completed.
    #[schemars(length(min = 2, max = 24))]
    pub max_duration: Option<String>,
    /// Maximum number of requests on an HTTP connection.
    #[schemars(range(min = 1))]
    pub max_requests: Option<i32>,
    /// TCP keepalive probes on idle connections.
    pub keepalive: Option<KeepaliveSettings>,
    /// PROXY protocol version that the backend expects. Each connection starts with a header that
    /// contains the client's address.
    pub proxy_protocol: Option<ProxyProtocolVersion>,
}

/// TCP keepalive probes on idle connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeepaliveSettings {
    /// Time without traffic before the first probe, in whole seconds. The default is `60s`.
    #[schemars(length(min = 2, max = 24))]
    pub idle: Option<String>,
    /// Time between probes, in whole seconds. The default is `10s`.
    #[schemars(length(min = 2, max = 24))]
    pub interval: Option<String>,
    /// Number of unanswered probes after which the connection is closed. The default is 3.
    #[schemars(range(min = 1, max = 127))]
    pub probes: Option<i32>,
}
