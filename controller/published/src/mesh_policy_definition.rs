//! The definition of `GatewayMeshPolicy`, made from the types that resolution reads.
//!
//! Its status has the form of the Gateway API's policies: an entry for each Gateway and controller.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sesame_gateway_api::api::{GATEWAY_GROUP, GatewayMeshPolicySpec, SESAME_GROUP};

use crate::definition_schema::{self, text};

/// Returns the definition.
pub fn mesh_policy_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("gatewaymeshpolicies.{SESAME_GROUP}"),
            "labels": {format!("{GATEWAY_GROUP}/policy"): "Direct"},
        },
        "spec": {
            "group": SESAME_GROUP,
            "names": {
                "kind": "GatewayMeshPolicy",
                "plural": "gatewaymeshpolicies",
                "shortNames": ["gwmeshpolicy"],
                "singular": "gatewaymeshpolicy",
            },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Gateway", "type": "string", "jsonPath": ".spec.targetRefs[*].name"},
                    {"name": "Bundle", "type": "string", "jsonPath": ".spec.mesh.trustBundle.name"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "Mesh in a cluster, for Gateways outside of it.",
                    "required": ["spec"],
                    "properties": {"spec": specification(), "status": status()},
                }},
            }],
        },
    }))
}

fn specification() -> Value {
    let mut schema = definition_schema::of::<GatewayMeshPolicySpec>();
    let targets = &mut schema["properties"]["targetRefs"]["items"];
    targets["x-kubernetes-validations"] = json!([{
        "rule": format!("self.group == '{GATEWAY_GROUP}' && self.kind == 'Gateway'"),
        "message": format!("expected kind Gateway of group {GATEWAY_GROUP}"),
    }]);
    let mesh = &mut schema["properties"]["mesh"];
    // Resolution refuses all traffic where it is missing.
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
        "message": "values: expected with operator In and NotIn, and not with the others",
    }]);
    schema
}

fn status() -> Value {
    json!({
        "type": "object",
        "description": "Judgements of the controllers of its Gateways.",
        "properties": {"ancestors": {
            "type": "array",
            "description": "Judgement for each Gateway.",
            "maxItems": 16,
            "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object",
                "required": ["ancestorRef", "controllerName", "conditions"],
                "properties": {
                    "ancestorRef": {
                        "type": "object",
                        "description": "Gateway.",
                        "required": ["name"],
                        "properties": {
                            "group": text("API group.", 253),
                            "kind": text("Kind.", 63),
                            "namespace": text("Namespace.", 63),
                            "name": text("Name.", 253),
                        },
                    },
                    "controllerName": text("Controller of the Gateway.", 253),
                    "conditions": definition_schema::conditions(
                        "Accepted and ResolvedRefs: true if meshed routes are sent as the policy says.",
                    ),
                },
            },
        }},
    })
}
