//! Builds the parts that all policy CRDs share.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sesame_kinds::api::{GATEWAY_GROUP, SESAME_GROUP};

use super::schema::{self, text};

pub(crate) fn definition(
    names: &Value,
    scope: &str,
    columns: [(&str, &str); 2],
    description: &str,
    specification: &Value,
    status: &Value,
) -> Result<CustomResourceDefinition, serde_json::Error> {
    let columns =
        columns.map(|(name, path)| json!({"name": name, "type": "string", "jsonPath": path}));
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    let columns: Vec<Value> = columns.into_iter().chain([age]).collect();
    let schema = json!({
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {"spec": specification, "status": status},
    });
    let version = (SESAME_GROUP, "v1alpha1");
    let mut definition = schema::definition(version, names, scope, &json!(columns), &schema)?;
    let labels = definition.metadata.labels.get_or_insert_default();
    labels.insert(format!("{GATEWAY_GROUP}/policy"), "Direct".to_owned());
    Ok(definition)
}

/// Labels a CRD as an inherited policy, which also applies to objects below its targets (GEP-713).
pub(crate) fn inherited(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let labels = definition.metadata.labels.get_or_insert_default();
    labels.insert(format!("{GATEWAY_GROUP}/policy"), "Inherited".to_owned());
    definition
}

pub(crate) fn status(of: &str, conditions: &str) -> Value {
    json!({
        "type": "object",
        "description": "Statuses reported by the controllers of Gateways.",
        "properties": {"ancestors": {
            "type": "array",
            "description": format!("Status for each {of}."),
            "maxItems": 16,
            "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object",
                "required": ["ancestorRef", "controllerName", "conditions"],
                "properties": {
                    "ancestorRef": {
                        "type": "object",
                        "description": format!("{of}."),
                        "required": ["name"],
                        "properties": {
                            "group": text("API group.", 253),
                            "kind": text("Kind.", 63),
                            "namespace": text("Namespace.", 63),
                            "name": text("Name.", 253),
                        },
                    },
                    "controllerName": text("Controller of the Gateways.", 253),
                    "conditions": schema::conditions(conditions),
                },
            },
        }},
    })
}

pub(super) fn status_of_gateways() -> Value {
    status(
        "Gateway",
        "Accepted: true if the policy applies as written. Programmed: true if all of the Gateway's hosts apply the policy.",
    )
}

pub(super) fn check_target_kind(target: &mut Value) {
    check_target_kinds(
        target,
        &["Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute"],
    );
}

pub(super) fn check_target_kinds(target: &mut Value, kinds: &[&str]) {
    let quoted = kinds.iter().map(|kind| format!("'{kind}'"));
    let quoted = quoted.collect::<Vec<_>>().join(", ");
    let expected = match kinds {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        kinds => kinds.concat(),
    };
    target["x-kubernetes-validations"] = json!([{
        "rule": format!("self.group == '{GATEWAY_GROUP}' && self.kind in [{quoted}]"),
        "message": format!("expected a {expected}"),
    }]);
}
