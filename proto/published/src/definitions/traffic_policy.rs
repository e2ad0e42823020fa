//! Generates the `TrafficPolicy` CRD from its Rust type.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sesame_kinds::api::{
    CompressionType, ErrorPageSource, HeaderFact, LimitHeaders, LimitMode, LimitScope,
    TrafficPolicySpec,
};

use super::policy::{check_target_kind, definition, inherited, status_of_gateways};
use super::schema;

/// Returns the TrafficPolicy CRD.
pub fn traffic_policy_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let definition = definition(
        &schema::names("TrafficPolicy", "trafficpolicies", &["tpolicy"]),
        "Namespaced",
        [
            ("Target", ".spec.targetRefs[*].name"),
            ("Limits", ".spec.rateLimits[*].name"),
        ],
        "Limits and defaults for requests to Gateways, ListenerSets and routes.",
        &specification(),
        &status_of_gateways(),
    )?;
    Ok(inherited(definition))
}

/// Sections of which at least one must be set.
const SECTIONS: [&str; 10] = [
    "rateLimits",
    "requestBody",
    "bandwidth",
    "timeouts",
    "retry",
    "compression",
    "errorPages",
    "headers",
    "grpcWeb",
    "fault",
];

fn specification() -> Value {
    let mut schema = schema::generate::<TrafficPolicySpec>();
    schema["x-kubernetes-validations"] = json!([{
        "rule": SECTIONS.map(|section| format!("has(self.{section})")).join(" || "),
        "message": format!("expected at least one of {}", SECTIONS.join(", ")),
    }]);
    let fields = &mut schema["properties"];
    check_target_kind(&mut fields["targetRefs"]["items"]);
    let limits = &mut fields["rateLimits"];
    limits["x-kubernetes-list-type"] = json!("map");
    limits["x-kubernetes-list-map-keys"] = json!(["name"]);
    let is_service = "has(self.scope) && self.scope == 'Service'";
    limits["items"]["x-kubernetes-validations"] = json!([
        {
            "rule": format!("has(self.service) == ({is_service})"),
            "message": "service: required with scope Service, otherwise not allowed",
        },
        {
            "rule": format!("has(self.requests) != ({is_service}) && has(self.per) != ({is_service})"),
            "message": "requests and per: required unless scope is Service, otherwise not allowed",
        },
        {
            "rule": format!("!has(self.burst) || !({is_service})"),
            "message": "burst: not allowed with scope Service",
        },
    ]);
    let limit = &mut limits["items"]["properties"];
    limit["service"]["properties"]["backendRef"]["x-kubernetes-validations"] = json!([{
        "rule": "has(self.port)",
        "message": "port is required",
    }]);
    limit["scope"]["enum"] = json!(LimitScope::WORDS);
    limit["mode"]["enum"] = json!(LimitMode::WORDS);
    limit["headers"]["enum"] = json!(LimitHeaders::WORDS);
    let key = &mut limit["keys"]["items"];
    key["x-kubernetes-validations"] = json!([{
        "rule": "has(self.name) == (self.type in ['Header', 'Cookie', 'QueryParameter'])",
        "message": "name: required with Header, Cookie or QueryParameter, otherwise not allowed",
    }]);
    fields["fault"]["x-kubernetes-validations"] = json!([{
        "rule": "has(self.delay) || has(self.abort)",
        "message": "expected delay or abort",
    }]);
    fields["bandwidth"]["x-kubernetes-validations"] = json!([{
        "rule": "has(self.request) || has(self.response)",
        "message": "expected request or response",
    }]);
    fields["compression"]["properties"]["types"]["items"]["enum"] = json!(CompressionType::WORDS);
    fields["errorPages"]["items"]["properties"]["source"]["enum"] = json!(ErrorPageSource::WORDS);
    for direction in ["request", "response"] {
        for list in ["set", "add"] {
            let headers = &mut fields["headers"]["properties"][direction]["properties"][list];
            let header = &mut headers["items"];
            header["properties"]["valueFrom"]["enum"] = json!(HeaderFact::WORDS);
            header["x-kubernetes-validations"] = json!([{
                "rule": "has(self.value) != has(self.valueFrom)",
                "message": "expected value or valueFrom",
            }]);
        }
    }
    schema
}
