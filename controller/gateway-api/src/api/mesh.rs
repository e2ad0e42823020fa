//! `GatewayMeshPolicy`: a Gateway outside the cluster and the mesh whose workloads it sends to.
//!
//! The fields are those of GEP-3951, which no upstream type carries. A Gateway that has them itself is read, too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LabelSelector, Object, SubjectAltName};

/// `GatewayMeshPolicy` v1alpha1.
pub type GatewayMeshPolicy = Object<GatewayMeshPolicySpec>;

/// Mesh for Gateways outside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayMeshPolicySpec {
    /// Gateways of the policy's own namespace that send to the mesh.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<LocalPolicyTargetRef>,
    /// Mesh, as the Gateway sees it.
    pub mesh: GatewayMesh,
}

/// Object of the policy's own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalPolicyTargetRef {
    /// API group.
    #[schemars(length(max = 253))]
    pub group: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Mesh, as a Gateway outside the cluster sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayMesh {
    /// CA certificates of which one must have signed the certificate of each peer.
    pub trust_bundle: TrustBundleRef,
    /// Routes that are meshed: those with these labels, and those in a namespace with these labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Names of which the certificate of each peer must have one. Any name will do where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// CA certificates in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrustBundleRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the ConfigMap; that of the Gateway by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Key of the ConfigMap that has the certificates as PEM; `ca-bundle.crt` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub bundle_key: Option<String>,
}
