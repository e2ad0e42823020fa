//! `BackendPolicy`: how requests and connections reach the endpoints of a Service or XBackend.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BalancerType, Object, PolicyTargetRef, ProxyProtocolVersion, RequestKey};

/// `BackendPolicy` v1alpha1.
pub type BackendPolicy = Object<BackendPolicySpec>;

/// Settings for all traffic to a backend, whatever route sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendPolicySpec {
    /// Services, or named ports of them, and XBackends, in the policy's own namespace. A policy for
    /// a port replaces one for its Service. Of several for one target, the oldest applies.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<PolicyTargetRef>,
    /// Choice of an endpoint. The default is one endpoint after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<BalancerSettings>,
    /// Checks of endpoints. The default is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthSettings>,
    /// Limits that each gateway host keeps for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<BreakerSettings>,
    /// Connections to endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionSettings>,
}

/// Choice of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BalancerSettings {
    /// Strategy. RingHash and Maglev send requests with equal values of `hash` to one endpoint.
    #[serde(rename = "type")]
    pub type_: BalancerType,
    /// Values of requests that choose the endpoint, for RingHash and Maglev. Without any of them, a
    /// request gets a random endpoint. Connections without requests have ClientAddress only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub hash: Vec<RequestKey>,
    /// Gives new endpoints a growing share, with RoundRobin and LeastRequest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<SlowStartSettings>,
}

/// Growth of the share of a new endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlowStartSettings {
    /// Time until an endpoint has its full share, from `1ms` to `24h`.
    #[schemars(length(min = 2, max = 24))]
    pub window: String,
    /// Share at the beginning in percent. The default is 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub min_weight_percent: Option<i32>,
}

/// Checks of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthSettings {
    /// Requests of the gateway itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<ActiveCheck>,
    /// Ejects endpoints because of their responses to clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive: Option<PassiveCheck>,
    /// If at most this share of the endpoints is healthy, all get requests, because the checks are
    /// then more likely wrong than the endpoints. The default is 50; 0 disables it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub panic_threshold: Option<i32>,
}

/// Requests of the gateway itself. At most one of `http`, `grpc` and `tcp` must be set; without
/// any, an endpoint is healthy if it accepts a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveCheck {
    /// GET requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpActiveCheck>,
    /// Calls of `grpc.health.v1.Health`, to backends with HTTP/2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcActiveCheck>,
    /// Connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpActiveCheck>,
    /// Time between checks, up to `24h`. The default is `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 24))]
    pub interval: Option<String>,
    /// Time for a check, up to `10s`. The default is `1s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 24))]
    pub timeout: Option<String>,
    /// Successes in a row after which an endpoint is healthy again. The default is 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub healthy_threshold: Option<i32>,
    /// Failures in a row after which an endpoint is unhealthy. The default is 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub unhealthy_threshold: Option<i32>,
}

/// GET requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpActiveCheck {
    /// Path, with the query.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// Host of the requests. The default is `health-check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub hostname: Option<String>,
    /// Statuses of a healthy endpoint. The default is 200.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub statuses: Vec<StatusSpan>,
}

/// Statuses from `first` to `last`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusSpan {
    /// First status.
    #[schemars(range(min = 100, max = 599))]
    pub first: i32,
    /// Last status. The default is `first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 599))]
    pub last: Option<i32>,
}

/// Calls of `grpc.health.v1.Health`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcActiveCheck {
    /// Name of the service. The default is the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub service: Option<String>,
}

/// Connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TcpActiveCheck {}

/// Ejects endpoints because of their responses to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PassiveCheck {
    /// Responses in a row with a status of 500 or more, or failed connections. The default is 5; 0
    /// ignores them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub consecutive_server_errors: Option<i32>,
    /// Responses in a row with 502, 503 or 504, or failed connections. The default is 0, which
    /// ignores them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub consecutive_gateway_errors: Option<i32>,
    /// Time between decisions, up to `24h`. The default is `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 24))]
    pub interval: Option<String>,
    /// Time of the first ejection, up to `24h`; each further one is longer. The default is `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 24))]
    pub base_ejection_time: Option<String>,
    /// Largest share of ejected endpoints. One can always be ejected. The default is 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_ejection_percent: Option<i32>,
}

/// Limits that each gateway host keeps for itself. Beyond them, requests are answered with 503.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BreakerSettings {
    /// Connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_connections: Option<i32>,
    /// Connections to one endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_connections_per_endpoint: Option<i32>,
    /// Requests that wait for a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_pending_requests: Option<i32>,
    /// Concurrent requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_requests: Option<i32>,
    /// Concurrent retries. It excludes `retryBudget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_retries: Option<i32>,
    /// Concurrent retries as a share of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_budget: Option<RetryBudgetSettings>,
}

/// Concurrent retries as a share of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryBudgetSettings {
    /// Percent of concurrent requests.
    #[schemars(range(min = 1, max = 100))]
    pub percent: i32,
    /// Concurrent retries that are always allowed. The default is 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1024))]
    pub min_retries: Option<i32>,
}

/// Connections to endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionSettings {
    /// Time to connect, up to `24h`. The default is `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 24))]
    pub timeout: Option<String>,
    /// Time without requests after which an HTTP connection is closed, up to `24h`; `0s` for never.
    /// The default is `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 24))]
    pub idle_timeout: Option<String>,
    /// Largest age of an HTTP connection, up to `24h`. Requests in progress are completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 24))]
    pub max_duration: Option<String>,
    /// Largest number of requests on an HTTP connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_requests: Option<i32>,
    /// Probes of idle connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<KeepaliveSettings>,
    /// Version of the PROXY protocol that the backend expects: a header with the client's address
    /// at the beginning of each connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocolVersion>,
}

/// Probes of idle TCP connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeepaliveSettings {
    /// Time without traffic before the first probe, in whole seconds. The default is `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 24))]
    pub idle: Option<String>,
    /// Time between probes, in whole seconds. The default is `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 24))]
    pub interval: Option<String>,
    /// Unanswered probes after which the connection is closed. The default is 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 127))]
    pub probes: Option<i32>,
}
