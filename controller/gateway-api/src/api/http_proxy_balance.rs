//! Load balancing and health checks in an `HTTPProxy`.

use schemars::JsonSchema;
use serde::Deserialize;

/// `LoadBalancerPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyLoadBalancer {
    /// `RoundRobin`, `WeightedLeastRequest`, `Random`, `RequestHash` or `Cookie`.
    pub strategy: String,
    /// The request values that `RequestHash` uses.
    pub request_hash_policies: Vec<ProxyHashPolicy>,
}

/// `RequestHashPolicy`. Only one kind of value is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHashPolicy {
    /// True to skip later policies once this one yields a value.
    pub terminal: bool,
    /// A header.
    pub header_hash_options: Option<ProxyHeaderHash>,
    /// A query parameter.
    pub query_parameter_hash_options: Option<ProxyQueryHash>,
    /// The address of the client.
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

/// `HTTPHealthCheckPolicy`. 0 means the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyHealthCheck {
    /// The path.
    pub path: String,
    /// The Host header.
    pub host: String,
    /// 10 by default.
    pub interval_seconds: i64,
    /// 2 by default.
    pub timeout_seconds: i64,
    /// 3 by default.
    pub unhealthy_threshold_count: i64,
    /// 2 by default.
    pub healthy_threshold_count: i64,
    /// 200 by default.
    pub expected_statuses: Vec<ProxyStatusRange>,
}

/// `HTTPStatusRange`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyStatusRange {
    /// The first status.
    pub start: i64,
    /// The status after the last one (exclusive end).
    pub end: i64,
}

/// `TCPHealthCheckPolicy`. 0 means the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyTcpHealthCheck {
    /// 10 by default.
    pub interval_seconds: i64,
    /// 2 by default.
    pub timeout_seconds: i64,
    /// 3 by default.
    pub unhealthy_threshold_count: i64,
    /// 2 by default.
    pub healthy_threshold_count: i64,
}

/// `SlowStartPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxySlowStart {
    /// Time until a new endpoint has its full share.
    pub window: String,
    /// The exponent of the growth; 1.0 by default.
    pub aggression: String,
    /// The initial share in percent; 10 by default.
    pub min_weight_percent: Option<i64>,
}
