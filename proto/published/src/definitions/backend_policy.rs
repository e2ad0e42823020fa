//! Generates the `BackendPolicy` CRD from its Rust type.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sesame_kinds::api::{BackendPolicySpec, EXPERIMENTAL_GATEWAY_GROUP};

use super::policy::{definition, status_of_gateways};
use super::schema;

/// Returns the BackendPolicy CRD.
pub fn backend_policy_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    definition(
        &schema::names("BackendPolicy", "backendpolicies", &["bpolicy"]),
        "Namespaced",
        [
            ("Target", ".spec.targetRefs[*].name"),
            ("Balancer", ".spec.loadBalancer.type"),
        ],
        "How requests and connections reach the endpoints of a Service or XBackend.",
        &specification(),
        &status_of_gateways(),
    )
}

fn specification() -> Value {
    let mut schema = schema::generate::<BackendPolicySpec>();
    schema["x-kubernetes-validations"] = json!([{
        "rule": "has(self.loadBalancer) || has(self.healthCheck) || has(self.circuitBreaker) || has(self.connection)",
        "message": "expected loadBalancer, healthCheck, circuitBreaker or connection",
    }]);
    let fields = &mut schema["properties"];
    fields["targetRefs"]["items"]["x-kubernetes-validations"] = json!([{
        "rule": format!(
            "self.group == '' && self.kind == 'Service' || self.group == '{EXPERIMENTAL_GATEWAY_GROUP}' \
             && self.kind == 'XBackend' && !has(self.sectionName)"
        ),
        "message": "expected a Service of the core group, or an XBackend without sectionName",
    }]);
    let balancer = &mut fields["loadBalancer"];
    balancer["x-kubernetes-validations"] = json!([
        {
            "rule": "(self.type in ['RingHash', 'Maglev']) == (has(self.hash) && size(self.hash) > 0)",
            "message": "hash: required with type RingHash or Maglev, and not allowed otherwise",
        },
        {
            "rule": "!has(self.slowStart) || self.type in ['RoundRobin', 'LeastRequest']",
            "message": "slowStart: allowed only with type RoundRobin or LeastRequest",
        },
    ]);
    schema::check_request_key(&mut balancer["properties"]["hash"]["items"]);
    let active = &mut fields["healthCheck"]["properties"]["active"];
    active["x-kubernetes-validations"] = json!([{
        "rule": "[has(self.http), has(self.grpc), has(self.tcp)].filter(it, it).size() <= 1",
        "message": "expected at most one of http, grpc and tcp",
    }]);
    active["properties"]["http"]["properties"]["path"]["pattern"] = json!("^/");
    fields["circuitBreaker"]["x-kubernetes-validations"] = json!([{
        "rule": "!has(self.maxRetries) || !has(self.retryBudget)",
        "message": "expected at most one of maxRetries and retryBudget",
    }]);
    schema
}
