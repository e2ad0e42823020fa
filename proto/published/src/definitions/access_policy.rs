//! Generates the `AccessPolicy` CRD from its Rust type.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sesame_kinds::api::{
    AccessAction, AccessMode, AccessPart, AccessPolicySpec, AddressSource, ForwardedToken,
};

use super::policy::{check_target_kinds, definition, inherited, status_of_gateways};
use super::schema;

/// Returns the AccessPolicy CRD.
pub fn access_policy_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let definition = definition(
        &schema::names("AccessPolicy", "accesspolicies", &["apolicy"]),
        "Namespaced",
        [
            ("Target", ".spec.targetRefs[*].name"),
            ("Issuer", ".spec.jwt.providers[*].issuer"),
        ],
        "Conditions that requests and connections to Gateways, ListenerSets and routes must meet.",
        &specification(),
        &status_of_gateways(),
    )?;
    Ok(inherited(definition))
}

fn specification() -> Value {
    let mut schema = schema::generate::<AccessPolicySpec>();
    let parts = AccessPart::ALL.map(AccessPart::as_str);
    let has_any = |parts: &[AccessPart]| {
        let parts = parts.iter().map(|it| format!("has(self.{})", it.as_str()));
        parts.collect::<Vec<_>>().join(" || ")
    };
    schema["x-kubernetes-validations"] = json!([
        {
            "rule": has_any(&AccessPart::ALL),
            "message": format!("expected at least one of {}", parts.join(", ")),
        },
        {
            "rule": "has(self.jwt) || !has(self.authorization) || !self.authorization.rules.exists(it, has(it.claims))",
            "message": "claims: allowed only with jwt",
        },
        {
            "rule": "!has(self.exemptions) || self.targetRefs.all(it, it.kind in ['Gateway', 'ListenerSet'])",
            "message": "exemptions: allowed only with targets of kind Gateway or ListenerSet",
        },
        {
            "rule": format!("!({}) || self.targetRefs.all(it, !(it.kind in ['TLSRoute', 'TCPRoute', 'UDPRoute']))", has_any(&AccessPart::HTTP_ONLY)),
            "message": format!("only {} is allowed with targets of kind TLSRoute, TCPRoute or UDPRoute", AccessPart::IpFilter.as_str()),
        },
    ]);
    let fields = &mut schema["properties"];
    let routes = ["HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"];
    let targets = [&["Gateway", "ListenerSet"][..], &routes].concat();
    check_target_kinds(&mut fields["targetRefs"]["items"], &targets);
    fields["exemptions"]["items"]["properties"]["kind"]["enum"] =
        json!([&routes[..], &["HTTPProxy", "Ingress"]].concat());
    fields["exemptions"]["items"]["properties"]["parts"]["items"]["enum"] = json!(parts);
    fields["mode"]["enum"] = json!(AccessMode::WORDS);
    let filter = &mut fields["ipFilter"];
    filter["x-kubernetes-validations"] = json!([{
        "rule": "has(self.allow) || has(self.deny) || has(self.allowRefs) || has(self.denyRefs)",
        "message": "expected allow, deny, allowRefs or denyRefs",
    }]);
    filter["properties"]["source"]["enum"] = json!(AddressSource::WORDS);
    check_providers(&mut fields["jwt"]["properties"]["providers"]);
    fields["basicAuth"]["properties"]["usernameHeader"]["pattern"] = json!("^[xX]-");
    let api_keys = &mut fields["apiKeyAuth"]["properties"];
    api_keys["clientHeader"]["pattern"] = json!("^[xX]-");
    api_keys["sources"]["items"]["x-kubernetes-validations"] = exactly_one_source();
    check_login(&mut fields["oidc"]["properties"]);
    let service = &mut fields["extAuth"];
    service["properties"]["protocol"]["enum"] = json!(["HTTP", "GRPC"]);
    service["x-kubernetes-validations"] = json!([
        {
            "rule": "self.protocol == 'GRPC' ? !has(self.http) : !has(self.grpc)",
            "message": "expected grpc only with protocol GRPC, and http only with protocol HTTP",
        },
        {"rule": "has(self.backendRef.port)", "message": "backendRef.port is required"},
    ]);
    let rules = &mut fields["authorization"]["properties"];
    rules["defaultAction"]["enum"] = json!(AccessAction::WORDS);
    let rule = &mut rules["rules"]["items"]["properties"];
    rule["action"]["enum"] = json!(AccessAction::WORDS);
    rule["paths"]["items"]["properties"]["type"]["enum"] = json!(["Exact", "PathPrefix"]);
    schema
}

fn check_login(fields: &mut Value) {
    let path = "^(/[A-Za-z0-9._~-]+)+$";
    for field in ["redirectPath", "logoutPath"] {
        fields[field]["pattern"] = json!(path);
    }
    fields["apiPaths"]["items"]["pattern"] = json!(path);
    fields["hostnames"]["items"]["pattern"] = json!("^(\\*\\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$");
    fields["forwardToken"]["enum"] = json!(ForwardedToken::WORDS);
    let provider = &mut fields["provider"];
    for field in [
        "authorizationEndpoint",
        "tokenEndpoint",
        "endSessionEndpoint",
    ] {
        provider["properties"][field]["pattern"] = json!("^https?://[^/?#@]+([/?][^#]*)?$");
    }
    provider["properties"]["issuer"]["pattern"] = json!("^https://[^/?#@]+(/[^?#]*)?$");
    provider["x-kubernetes-validations"] = json!([
        {
            "rule": "has(self.issuer) || has(self.authorizationEndpoint) && has(self.tokenEndpoint)",
            "message": "issuer is required unless authorizationEndpoint and tokenEndpoint are set",
        },
        {"rule": "has(self.backendRef.port)", "message": "backendRef.port is required"},
    ]);
}

fn check_providers(providers: &mut Value) {
    providers["x-kubernetes-list-type"] = json!("map");
    providers["x-kubernetes-list-map-keys"] = json!(["name"]);
    let fields = &mut providers["items"]["properties"];
    fields["name"]["pattern"] = json!("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$");
    fields["jwks"]["x-kubernetes-validations"] = json!([{
        "rule": "[has(self.inline), has(self.configMapRef), has(self.remote)].filter(it, it).size() == 1",
        "message": "expected one of inline, configMapRef and remote",
    }]);
    let remote = &mut fields["jwks"]["properties"]["remote"]["properties"];
    remote["uri"]["pattern"] = json!("^https://[^/?#@]+([/?][^#]*)?$");
    fields["sources"]["items"]["x-kubernetes-validations"] = exactly_one_source();
    fields["claimHeaders"]["items"]["properties"]["header"]["pattern"] = json!("^[xX]-");
}

fn exactly_one_source() -> Value {
    json!([{
        "rule": "[has(self.header), has(self.queryParameter), has(self.cookie)].filter(it, it).size() == 1",
        "message": "expected one of header, queryParameter and cookie",
    }])
}
