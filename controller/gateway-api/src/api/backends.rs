//! `XBackend` and `XBackendTrafficPolicy`, and the parts of a Pod that an `XBackend` needs.

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
    /// `ExternalHostname` or `EndpointSelector`.
    #[serde(rename = "type")]
    pub type_: String,
    /// For `EndpointSelector`: the Pods.
    pub endpoint_selector: Option<EndpointSelector>,
    /// For `ExternalHostname`: the host.
    pub external_hostname: Option<ExternalHostname>,
    /// The port of every endpoint.
    pub port: XBackendPort,
    /// Protocol of the port. Defaults to the protocol of the route.
    pub protocol: Option<String>,
    /// Session persistence across the endpoints.
    pub session_persistence: Option<SessionPersistence>,
    /// TLS to the endpoints; no TLS if unset.
    pub tls: Option<XBackendTls>,
}

/// `EndpointSelector`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSelector {
    /// Labels that a Pod must have.
    pub match_labels: BTreeMap<String, String>,
}

/// `ExternalHostnameBackend`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalHostname {
    /// The name of the host.
    pub hostname: String,
}

/// `BackendPort`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct XBackendPort {
    /// The number.
    pub number: Option<i32>,
}

/// `BackendTLS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendTls {
    /// `None`, `ServerOnly` or `ClientAndServer`.
    pub mode: String,
    /// Validation of endpoint certificates; for all modes except `None`.
    pub validation: Option<BackendTlsValidation>,
    /// Client certificate presented to endpoints; for `ClientAndServer`.
    pub client_certificate_ref: Option<ObjectRef>,
}

/// `BackendTrafficPolicySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendTrafficPolicySpec {
    /// Backends in the policy's own namespace.
    pub target_refs: Vec<LocalPolicyTargetRef>,
    /// Limits on retries.
    pub retry_constraint: Option<RetryConstraint>,
    /// Session persistence across the endpoints of each target.
    pub session_persistence: Option<SessionPersistence>,
}

/// `RetryConstraint`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RetryConstraint {
    /// Maximum share of retries among the requests of an interval.
    pub budget: Option<RetryBudget>,
    /// Retries that are always allowed.
    pub min_retry_rate: Option<RetryRate>,
}

/// `BudgetDetails`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RetryBudget {
    /// Percentage of retries; 20 if unset.
    pub percent: Option<i32>,
    /// Interval over which requests are counted; 10 seconds if unset.
    pub interval: Option<String>,
}

/// `RequestRate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RetryRate {
    /// Number of requests; 10 if unset.
    pub count: Option<i32>,
    /// Interval; 1 second if unset.
    pub interval: Option<String>,
}

/// `Pod` v1. A cluster has many Pods, so only the needed parts of their statuses are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata, with the labels that selectors match.
    pub metadata: Metadata,
    /// State of the Pod.
    pub status: PodState,
}

/// The parts of a Pod's state that traffic depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "PodStatus")]
pub struct PodState {
    /// First address of the Pod; empty until one is assigned.
    pub address: Box<str>,
    /// True if the Pod can respond, even while it is terminating.
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
