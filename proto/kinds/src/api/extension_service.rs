//! `ExtensionService` in `projectcontour.io/v1alpha1`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Object, ProxyLoadBalancer, ProxyTimeouts, ProxyValidation};

/// `ExtensionService` v1alpha1: a service that HTTPProxies use for authorization or rate limits.
pub type ExtensionService = Object<ExtensionServiceSpec>;

/// `ExtensionServiceSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ExtensionServiceSpec {
    /// At most 16 Services, with the same protocol, TLS settings and policies. They share requests by
    /// weight.
    pub services: Vec<ExtensionTarget>,
    /// Verification of the Service's certificate, for `h2`.
    pub validation: Option<ProxyValidation>,
    /// Protocol: `h2` (HTTP/2 over TLS, the default), `h2c` or `http/1.1`, both without TLS. `h2`
    /// needs `validation` or a BackendTLSPolicy for the Service.
    pub protocol: Option<Box<str>>,
    /// Load balancing across endpoints; `Cookie` and `RequestHash` have no effect.
    pub load_balancer_policy: Option<ProxyLoadBalancer>,
    /// Timeouts. `response` limits the wait for a response (5 seconds if empty), and
    /// `idleConnection` closes idle connections. `idle` has no effect.
    pub timeout_policy: Option<ProxyTimeouts>,
    /// Envoy's API version: `v3`, the default.
    pub protocol_version: String,
    /// Limits. They override the limits in the Service's annotations.
    pub circuit_breaker_policy: Option<ExtensionCircuitBreaker>,
}

/// `ExtensionServiceTarget`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ExtensionTarget {
    /// A Service in the ExtensionService's namespace.
    pub name: String,
    /// The port.
    pub port: i32,
    /// Share of the requests: 0 to 1,000,000. If no Service has a weight, all get equal shares;
    /// otherwise, Services without a weight get none.
    pub weight: i64,
}

/// `CircuitBreakers`. A value of 0 means the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ExtensionCircuitBreaker {
    /// Maximum number of connections.
    pub max_connections: i64,
    /// Maximum number of requests that wait for a connection.
    pub max_pending_requests: i64,
    /// Maximum number of concurrent requests.
    pub max_requests: i64,
    /// Maximum number of concurrent retries.
    pub max_retries: i64,
    /// Maximum number of connections to each endpoint.
    pub per_host_max_connections: i64,
}
