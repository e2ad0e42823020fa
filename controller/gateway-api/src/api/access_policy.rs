//! `AccessPolicy`: conditions on the requests of Gateways, ListenerSets and routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AddressSource, Object, PolicyTargetRef};

/// `AccessPolicy` v1alpha1.
pub type AccessPolicy = Object<AccessPolicySpec>;

/// Conditions on requests. A request must pass all policies above and at its rule, so a policy
/// makes access narrower, and never wider. If a policy is invalid, its targets answer all requests
/// with 500.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicySpec {
    /// Gateways, ListenerSets, HTTPRoutes and GRPCRoutes in the policy's own namespace. A section
    /// names a listener or a rule.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<PolicyTargetRef>,
    /// Addresses of clients. Requests of others are answered with 403.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_filter: Option<IpFilter>,
    /// Objects whose requests need not pass this policy. Only for policies of Gateways and
    /// ListenerSets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub exemptions: Vec<AccessExemption>,
}

/// Object whose requests need not pass a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessExemption {
    /// `HTTPRoute`, `GRPCRoute`, `HTTPProxy` or `Ingress`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace. The default is the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Addresses of clients that may send requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpFilter {
    /// Networks that may, such as `192.0.2.0/24`. The default is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 49)))]
    pub allow: Vec<String>,
    /// Networks that may not, even if they are allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 49)))]
    pub deny: Vec<String>,
    /// Address to compare. The default is `Client`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<AddressSource>,
}
