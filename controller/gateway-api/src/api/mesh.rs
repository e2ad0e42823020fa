//! `GatewayMeshPolicy` and `MeshOCGPolicy`: Gateways outside the cluster and the mesh whose
//! workloads they send to, as each side describes the other.
//!
//! The fields follow GEP-3951, which no upstream type carries. Fields that a Gateway or an XMesh
//! has itself are read as well.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GatewayRef, LabelSelector, Object, SubjectAltName};

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

/// Group of experimental Gateway API kinds.
pub const EXPERIMENTAL_GATEWAY_GROUP: &str = "gateway.networking.x-k8s.io";

/// Label of a ConfigMap written for a `MeshOCGPolicy`.
pub const OCG_BUNDLE_LABEL: &str = "projectsesame.io/ocg-bundle";

/// `MeshOCGPolicy` v1alpha1. It is cluster-scoped, as the mesh is.
pub type MeshOcgPolicy = Object<MeshOcgPolicySpec>;

/// Gateways outside the cluster, for a mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeshOcgPolicySpec {
    /// XMeshes that are sent to.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<LocalPolicyTargetRef>,
    /// Gateways outside the cluster, as the mesh sees them.
    pub ocg: MeshOcg,
    /// Gateways that send to the mesh. Every Gateway that has a mesh does where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub gateways: Vec<GatewayRef>,
    /// Writes the ConfigMap of `ocg.trustBundle`, and keeps it: with the CA certificates of `gateways`, which their Secrets have as
    /// `ca.crt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<bool>,
}

/// Gateways outside the cluster, as a mesh sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeshOcg {
    /// CA certificates of which one must have signed the certificate that a Gateway shows.
    pub trust_bundle: TrustBundleRef,
}

/// `XMesh` v1alpha1: a mesh. Its owner and its own settings are of no concern to Sesame.
pub type XMesh = Object<XMeshSpec>;

/// The fields of an XMesh about Gateways outside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct XMeshSpec {
    /// Gateways outside the cluster. No released definition has this field.
    pub ocg: Option<MeshOcg>,
}

/// Object that a policy is for: of the policy's own namespace, or of the whole cluster where the policy is.
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
    /// Patterns of which such a name may also be one: `*.svc.example.com`, or `spiffe://example.com/ns/*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub subject_alt_name_patterns: Vec<String>,
}

/// CA certificates in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrustBundleRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the ConfigMap; that of the Gateway by default. A mesh has none, so that it has to be named there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Key of the ConfigMap that has the certificates as PEM; `ca-bundle.crt` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub bundle_key: Option<String>,
}
