//! The definition of `TrafficPolicy`, generated from the type that resolution reads.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sesame_gateway_api::api::{GATEWAY_GROUP, TrafficPolicySpec};

use super::policy::{definition, inherited, status};
use super::schema;

/// Returns the definition of TrafficPolicy.
pub fn traffic_policy_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let definition = definition(
        &json!({
            "kind": "TrafficPolicy",
            "plural": "trafficpolicies",
            "shortNames": ["tpolicy"],
            "singular": "trafficpolicy",
        }),
        "Namespaced",
        [
            ("Target", ".spec.targetRefs[*].name"),
            ("Limits", ".spec.rateLimits[*].name"),
        ],
        "Limits and defaults for the requests of Gateways, ListenerSets and routes.",
        &specification(),
        &status(
            "Gateway",
            "Accepted: true if the policy applies as written. Programmed: true if every host of the Gateway serves it.",
        ),
    )?;
    Ok(inherited(definition))
}

fn specification() -> Value {
    let mut schema = schema::of::<TrafficPolicySpec>();
    schema["x-kubernetes-validations"] = json!([{
        "rule": "has(self.rateLimits) || has(self.timeouts) || has(self.retry)",
        "message": "expected rateLimits, timeouts or retry",
    }]);
    let fields = &mut schema["properties"];
    fields["targetRefs"]["items"]["x-kubernetes-validations"] = json!([{
        "rule": format!(
            "self.group == '{GATEWAY_GROUP}' && self.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute']"
        ),
        "message": "expected a Gateway, ListenerSet, HTTPRoute or GRPCRoute",
    }]);
    let limits = &mut fields["rateLimits"];
    limits["x-kubernetes-list-type"] = json!("map");
    limits["x-kubernetes-list-map-keys"] = json!(["name"]);
    let key = &mut limits["items"]["properties"]["keys"]["items"];
    schema::check_request_key(key);
    key["properties"]["type"]["enum"] = json!(["ClientAddress", "Header", "QueryParameter"]);
    schema
}
