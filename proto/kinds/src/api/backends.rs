//! `XBackend` and `XBackendTrafficPolicy`, and the Pod fields that an `XBackend` needs.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    BackendTlsValidation, LocalPolicyTargetRef, Metadata, Object, ObjectRef, SessionPersistence,
};

/// `XBackend` v1alpha1 (experimental).
pub type XBackend = Object<XBackendSpec>;
/// `XBackendTrafficPolicy` v1alpha1 (experimental).
pub type XBackendTrafficPolicy = Object<XBackendTrafficPolicySpec>;

/// `BackendSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendSpec {
    /// Kind of backend: `ExternalHostname` or `EndpointSelector`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Selects the Pods that serve as endpoints. Only for type `EndpointSelector`.
    pub endpoint_selector: Option<EndpointSelector>,
    /// The external host. Only for type `ExternalHostname`.
    pub external_hostname: Option<ExternalHostname>,
    /// The port that every endpoint listens on.
    pub port: XBackendPort,
    /// The port's protocol. Defaults to the route's protocol.
    pub protocol: Option<String>,
    /// Session persistence across the XBackend's endpoints.
    pub session_persistence: Option<SessionPersistence>,
    /// TLS to the endpoints. If unset, connections use no TLS.
    pub tls: Option<XBackendTls>,
}

/// `EndpointSelector`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSelector {
    /// Labels that a Pod must have to be selected.
    pub match_labels: BTreeMap<String, String>,
}

/// `ExternalHostnameBackend`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalHostname {
    /// DNS name of the host.
    pub hostname: String,
}

/// `BackendPort`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct XBackendPort {
    /// The port number.
    pub number: Option<i32>,
}

/// `BackendTLS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendTls {
    /// TLS mode: `None`, `ServerOnly` or `ClientAndServer`.
    pub mode: String,
    /// Validation of the endpoints' certificates, in all modes except `None`.
    pub validation: Option<BackendTlsValidation>,
    /// Client certificate presented to the endpoints in mode `ClientAndServer`.
    pub client_certificate_ref: Option<ObjectRef>,
}

/// `BackendTrafficPolicySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendTrafficPolicySpec {
    /// Target Services and XBackends, all in the policy's namespace.
    pub target_refs: Vec<LocalPolicyTargetRef>,
    /// Limits on retries to each target.
    pub retry_constraint: Option<RetryConstraint>,
    /// Session persistence across the endpoints of each target.
    pub session_persistence: Option<SessionPersistence>,
}

/// `RetryConstraint`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RetryConstraint {
    /// Maximum percentage of an interval's requests that may be retries.
    pub budget: Option<RetryBudget>,
    /// Retry rate that is always allowed, regardless of the budget.
    pub min_retry_rate: Option<RetryRate>,
}

/// `BudgetDetails`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RetryBudget {
    /// Maximum percentage of retries. Defaults to 20.
    pub percent: Option<i32>,
    /// Interval over which requests are counted. Defaults to 10 seconds.
    pub interval: Option<String>,
}

/// `RequestRate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RetryRate {
    /// Number of requests per interval. Defaults to 10.
    pub count: Option<i32>,
    /// Length of the interval. Defaults to 1 second.
    pub interval: Option<String>,
}

/// `Pod` v1. A cluster has many Pods, so only a few status fields are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata, including the labels that XBackend selectors match.
    pub metadata: Metadata,
    /// The part of the Pod's status that affects traffic.
    pub status: PodState,
}

/// The Pod status fields that affect traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "PodStatus")]
pub struct PodState {
    /// The Pod's first address. Empty until an address is assigned.
    pub address: Box<str>,
    /// True if the Pod can respond to requests, even while it is terminating.
    pub serving: bool,
}

/// `PodStatus`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    conditions: Vec<PodCondition>,
}

/// `PodCondition`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PodCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl From<PodStatus> for PodState {
    fn from(status: PodStatus) -> Self {
        let PodStatus {
            phase,
            pod_ip,
            conditions,
        } = status;
        let mut ready = conditions.iter().filter(|it| it.type_ == "Ready");
        let finished = matches!(phase.as_str(), "Succeeded" | "Failed");
        Self {
            address: pod_ip.into(),
            serving: !finished && ready.any(|it| it.status == "True"),
        }
    }
}
