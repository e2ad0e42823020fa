//! The definition of `AccessPolicy`, generated from the type that resolution reads.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sesame_gateway_api::api::{AccessPolicySpec, AddressSource};

use super::policy::{definition, inherited, of_requests, status_of_gateways};
use super::schema;

/// Returns the definition of AccessPolicy.
pub fn access_policy_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let definition = definition(
        &json!({
            "kind": "AccessPolicy",
            "plural": "accesspolicies",
            "shortNames": ["apolicy"],
            "singular": "accesspolicy",
        }),
        "Namespaced",
        [
            ("Target", ".spec.targetRefs[*].name"),
            ("Allow", ".spec.ipFilter.allow"),
        ],
        "Conditions on the requests of Gateways, ListenerSets and routes.",
        &specification(),
        &status_of_gateways(),
    )?;
    Ok(inherited(definition))
}

fn specification() -> Value {
    let mut schema = schema::of::<AccessPolicySpec>();
    schema["x-kubernetes-validations"] = json!([
        {
            "rule": "has(self.ipFilter)",
            "message": "expected ipFilter",
        },
        {
            "rule": "!has(self.exemptions) || self.targetRefs.all(it, it.kind in ['Gateway', 'ListenerSet'])",
            "message": "exemptions: expected only with targets of kind Gateway or ListenerSet",
        },
    ]);
    let fields = &mut schema["properties"];
    of_requests(&mut fields["targetRefs"]["items"]);
    fields["exemptions"]["items"]["properties"]["kind"]["enum"] =
        json!(["HTTPRoute", "GRPCRoute", "HTTPProxy", "Ingress"]);
    let filter = &mut fields["ipFilter"];
    filter["x-kubernetes-validations"] = json!([{
        "rule": "has(self.allow) || has(self.deny)",
        "message": "expected allow or deny",
    }]);
    filter["properties"]["source"]["enum"] = json!(AddressSource::WORDS);
    schema
}
