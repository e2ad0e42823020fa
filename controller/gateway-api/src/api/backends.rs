//! `XBackend` and `XBackendTrafficPolicy`, and the parts of a Pod that matter to an `XBackend`.

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
    /// Selects the Pods that are the endpoints; for type `EndpointSelector`.
    pub endpoint_selector: Option<EndpointSelector>,
    /// The external host; for type `ExternalHostname`.
    pub external_hostname: Option<ExternalHostname>,
    /// The port on which every endpoint serves.
    pub port: XBackendPort,
    /// Protocol of the port; by default, the protocol of the route.
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
    /// `None`, `ServerOnly` or `ClientAndServer`.
    pub mode: String,
    /// Validation of the endpoints' certificates; for all modes except `None`.
    pub validation: Option<BackendTlsValidation>,
    /// Client certificate that is presented to endpoints; for mode `ClientAndServer`.
    pub client_certificate_ref: Option<ObjectRef>,
}

/// `BackendTrafficPolicySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendTrafficPolicySpec {
    /// Services and XBackends in the policy's own namespace.
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
    /// Maximum percentage of retries among the requests of an interval.
    pub budget: Option<RetryBudget>,
    /// Rate of retries that is always allowed.
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
    /// Number of requests per interval; 10 if unset.
    pub count: Option<i32>,
    /// Length of the interval; 1 second if unset.
    pub interval: Option<String>,
}

/// `Pod` v1. A cluster has many Pods, so only a few fields of their status are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata, including the labels that XBackends select.
    pub metadata: Metadata,
    /// State of the Pod.
    pub status: PodState,
}

/// The fields of a Pod's status that affect traffic.
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
