//! `GatewayMeshPolicy` and `MeshOCGPolicy`, which let a mesh and Gateways outside the cluster
//! verify each other's certificates.
//!
//! The fields follow GEP-3951, for which no upstream types exist yet. Gateways and XMeshes may also
//! set these fields directly.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{GatewayRef, LabelSelector, Object, SubjectAltName};

/// `GatewayMeshPolicy` v1alpha1.
pub type GatewayMeshPolicy = Object<GatewayMeshPolicySpec>;

/// Describes a mesh to Gateways outside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayMeshPolicySpec {
    /// Gateways in the policy's namespace that send requests to the mesh.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<LocalPolicyTargetRef>,
    /// Mesh settings for these Gateways.
    pub mesh: GatewayMesh,
}

/// API group of experimental Gateway API kinds.
pub const EXPERIMENTAL_GATEWAY_GROUP: &str = "gateway.networking.x-k8s.io";

/// Label on the ConfigMap written for a `MeshOCGPolicy`.
pub const OCG_BUNDLE_LABEL: &str = "projectsesame.io/ocg-bundle";

/// `MeshOCGPolicy` v1alpha1. Cluster-scoped, like the mesh.
pub type MeshOcgPolicy = Object<MeshOcgPolicySpec>;

/// Describes Gateways outside the cluster to a mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeshOcgPolicySpec {
    /// XMeshes to which the Gateways send requests.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<LocalPolicyTargetRef>,
    /// Settings for Gateways outside the cluster.
    pub ocg: MeshOcg,
    /// Gateways that send requests to the mesh. If empty, the policy applies to all Gateways with
    /// mesh settings.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub gateways: Vec<GatewayRef>,
    /// Creates and maintains the ConfigMap named in `ocg.trustBundle`. It contains the CA
    /// certificates from `ca.crt` in the Secrets of `gateways`.
    pub publish: Option<bool>,
}

/// A mesh's settings for Gateways outside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeshOcg {
    /// CA certificates that verify the Gateways' client certificates.
    pub trust_bundle: TrustBundleRef,
}

/// `XMesh` v1alpha1. Sesame reads only `spec.ocg`.
pub type XMesh = Object<XMeshSpec>;

/// The XMesh fields that concern Gateways outside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct XMeshSpec {
    /// Settings for Gateways outside the cluster. No released CRD has this field.
    pub ocg: Option<MeshOcg>,
}

/// Policy target in the policy's namespace, or a cluster-scoped target of a cluster-scoped policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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

/// Mesh settings for a Gateway outside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayMesh {
    /// CA certificates that verify peer certificates.
    pub trust_bundle: TrustBundleRef,
    /// Routes whose backends are in the mesh: routes with these labels, and routes in namespaces
    /// with these labels.
    pub label_selector: Option<LabelSelector>,
    /// Names. Each peer's certificate must contain one of them. If empty, any name is accepted.
    #[serde(default)]
    #[schemars(length(max = 5))]
    pub subject_alt_names: Vec<SubjectAltName>,
    /// Patterns that match additional names: `*.svc.example.com`, or `spiffe://example.com/ns/*`.
    #[serde(default)]
    #[schemars(length(max = 5))]
    pub subject_alt_name_patterns: Vec<String>,
}

/// CA certificates in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrustBundleRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the ConfigMap; the Gateway's namespace by default. Required for an XMesh, which
    /// has no namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Key of the PEM-encoded certificates in the ConfigMap; `ca-bundle.crt` by default.
    #[schemars(length(min = 1, max = 253))]
    pub bundle_key: Option<String>,
}
