//! Load balancing and health checks in an `HTTPProxy`.

use schemars::JsonSchema;
use serde::Deserialize;

/// `LoadBalancerPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyLoadBalancer {
    /// Strategy: `RoundRobin`, `WeightedLeastRequest`, `Random`, `RequestHash` or `Cookie`.
    pub strategy: String,
    /// Request properties to hash with `RequestHash`.
    pub request_hash_policies: Vec<ProxyHashPolicy>,
}

/// `RequestHashPolicy`. Exactly one property must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHashPolicy {
    /// If true, skips later policies once this one yields a value.
    pub terminal: bool,
    /// The header to hash.
    pub header_hash_options: Option<ProxyHeaderHash>,
    /// The query parameter to hash.
    pub query_parameter_hash_options: Option<ProxyQueryHash>,
    /// If true, hashes the client's address.
    #[serde(rename = "hashSourceIP")]
    pub hash_source_ip: bool,
}

/// `HeaderHashOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHeaderHash {
    /// The name.
    pub header_name: String,
}

/// `QueryParameterHashOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyQueryHash {
    /// The name.
    pub parameter_name: String,
}

/// `HTTPHealthCheckPolicy`. Values of 0 select the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHealthCheck {
    /// Path of health check requests.
    pub path: String,
    /// `Host` header of health check requests.
    pub host: String,
    /// Interval between checks in seconds; 10 by default.
    pub interval_seconds: i64,
    /// Timeout per check in seconds; 2 by default.
    pub timeout_seconds: i64,
    /// Number of failed checks after which an endpoint is unhealthy; 3 by default.
    pub unhealthy_threshold_count: i64,
    /// Number of successful checks after which an endpoint is healthy; 2 by default.
    pub healthy_threshold_count: i64,
    /// Statuses of successful checks; 200 by default.
    pub expected_statuses: Vec<ProxyStatusRange>,
}

/// `HTTPStatusRange`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyStatusRange {
    /// The first status.
    pub start: i64,
    /// The end of the range (exclusive).
    pub end: i64,
}

/// `TCPHealthCheckPolicy`. Values of 0 select the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyTcpHealthCheck {
    /// Interval between checks in seconds; 10 by default.
    pub interval_seconds: i64,
    /// Timeout per check in seconds; 2 by default.
    pub timeout_seconds: i64,
    /// Number of failed checks after which an endpoint is unhealthy; 3 by default.
    pub unhealthy_threshold_count: i64,
    /// Number of successful checks after which an endpoint is healthy; 2 by default.
    pub healthy_threshold_count: i64,
}

/// `SlowStartPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxySlowStart {
    /// Time until a new endpoint receives its full share of requests.
    pub window: String,
    /// Exponent of the ramp-up curve; 1.0 by default.
    pub aggression: String,
    /// Initial share as a percentage; 10 by default.
    pub min_weight_percent: Option<i64>,
}
