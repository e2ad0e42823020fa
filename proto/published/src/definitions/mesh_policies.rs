//! Generates the `GatewayMeshPolicy` and `MeshOCGPolicy` CRDs from their Rust types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sesame_kinds::api::{
    EXPERIMENTAL_GATEWAY_GROUP, GATEWAY_GROUP, GatewayMeshPolicySpec, MeshOcgPolicySpec,
};

use super::policy::{definition, status};
use super::schema;

/// Returns the GatewayMeshPolicy CRD.
pub fn mesh_policy_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let bundle = ".spec.mesh.trustBundle.name";
    definition(
        &schema::names(
            "GatewayMeshPolicy",
            "gatewaymeshpolicies",
            &["gwmeshpolicy"],
        ),
        "Namespaced",
        [("Gateway", ".spec.targetRefs[*].name"), ("Bundle", bundle)],
        "Describes a cluster's mesh to Gateways outside the cluster.",
        &specification(),
        &status(
            "Gateway",
            "Accepted and ResolvedRefs: true if requests of meshed routes are sent as the policy \
            specifies.",
        ),
    )
}

/// Returns the MeshOCGPolicy CRD.
pub fn mesh_ocg_policy_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let bundle = ".spec.ocg.trustBundle.name";
    definition(
        &schema::names("MeshOCGPolicy", "meshocgpolicies", &["ocgpolicy"]),
        "Cluster",
        [("Mesh", ".spec.targetRefs[*].name"), ("Bundle", bundle)],
        "Describes Gateways outside the cluster to the cluster's mesh.",
        &specification_of_ocg(),
        &status(
            "XMesh",
            "Accepted, ResolvedRefs, and ClientCertificateTrusted, which is true if the mesh trusts all Gateways.",
        ),
    )
}

fn specification_of_ocg() -> Value {
    let mut schema = schema::generate::<MeshOcgPolicySpec>();
    only_target(&mut schema, EXPERIMENTAL_GATEWAY_GROUP, "XMesh");
    schema["x-kubernetes-validations"] = json!([{
        "rule": "!has(self.publish) || !self.publish || has(self.gateways) && size(self.gateways) > 0",
        "message": "publish: requires gateways, because it publishes their CA certificates",
    }]);
    // Meshes are cluster-scoped, so the namespace has no default.
    let bundle = &mut schema["properties"]["ocg"]["properties"]["trustBundle"];
    bundle["required"] = json!(["name", "namespace"]);
    if let Some(namespace) = bundle["properties"]["namespace"].as_object_mut() {
        namespace.remove("nullable");
    }
    schema
}

fn only_target(schema: &mut Value, group: &str, kind: &str) {
    let targets = &mut schema["properties"]["targetRefs"]["items"];
    targets["x-kubernetes-validations"] = json!([{
        "rule": format!("self.group == '{group}' && self.kind == '{kind}'"),
        "message": format!("expected kind {kind} of group {group}"),
    }]);
}

fn specification() -> Value {
    let mut schema = schema::generate::<GatewayMeshPolicySpec>();
    only_target(&mut schema, GATEWAY_GROUP, "Gateway");
    let mesh = &mut schema["properties"]["mesh"];
    // Require these fields, because without them all routes are rejected.
    mesh["required"] = json!(["trustBundle", "labelSelector"]);
    let selector = &mut mesh["properties"]["labelSelector"];
    if let Some(selector) = selector.as_object_mut() {
        selector.remove("nullable");
    }
    let requirement = &mut selector["properties"]["matchExpressions"]["items"];
    requirement["properties"]["operator"]["enum"] =
        json!(["In", "NotIn", "Exists", "DoesNotExist"]);
    requirement["x-kubernetes-validations"] = json!([{
        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
        "message": "values: required with operator In or NotIn, and not allowed otherwise",
    }]);
    schema
}
