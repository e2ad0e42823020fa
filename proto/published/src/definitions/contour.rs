//! Generates the `HTTPProxy`, `TLSCertificateDelegation` and `ExtensionService` CRDs from their
//! Rust types. Fields that Sesame ignores are not validated.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sesame_kinds::api::{
    CONTOUR_GROUP, ExtensionServiceSpec, HttpProxySpec, TlsCertificateDelegationSpec,
};

use super::contour_limits;
use super::schema::{self, text};

/// Returns the HTTPProxy CRD.
pub fn http_proxy_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut schema = schema::generate::<HttpProxySpec>();
    contour_limits::add(&mut schema);
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    definition(
        "v1",
        &schema::names("HTTPProxy", "httpproxies", &["proxy", "proxies"]),
        &json!([
            column("FQDN", ".spec.virtualhost.fqdn"),
            column("TLS Secret", ".spec.virtualhost.tls.secretName"),
            column("Status", ".status.currentStatus"),
            column("Status Description", ".status.description"),
        ]),
        &schema,
        &status(),
    )
}

/// Returns the TLSCertificateDelegation CRD.
pub fn certificate_delegation_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut schema = schema::generate::<TlsCertificateDelegationSpec>();
    contour_limits::add(&mut schema);
    definition(
        "v1",
        &schema::names(
            "TLSCertificateDelegation",
            "tlscertificatedelegations",
            &["tlscerts"],
        ),
        &json!([]),
        &schema,
        &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    )
}

/// Returns the ExtensionService CRD.
pub fn extension_service_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut schema = schema::generate::<ExtensionServiceSpec>();
    contour_limits::add(&mut schema);
    definition(
        "v1alpha1",
        &schema::names(
            "ExtensionService",
            "extensionservices",
            &["extensionservice", "extensionservices"],
        ),
        &json!([]),
        &schema,
        &json!({"type": "object", "properties": {"conditions": conditions()}}),
    )
}

fn definition(
    version: &'static str,
    names: &Value,
    columns: &Value,
    specification: &Value,
    status: &Value,
) -> Result<CustomResourceDefinition, serde_json::Error> {
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": specification, "status": status},
    });
    schema::definition(
        (CONTOUR_GROUP, version),
        names,
        "Namespaced",
        columns,
        &schema,
    )
}

fn conditions() -> Value {
    let mut conditions = schema::conditions("Valid: true if everything is served as written.");
    let detail = json!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message"],
            "properties": {
                "type": text("Area.", 316),
                "status": text("True.", 16),
                "reason": text("Machine-readable reason.", 1024),
                "message": text("Human-readable message.", 32768),
            },
        },
    });
    for field in ["errors", "warnings"] {
        conditions["items"]["properties"][field] = detail.clone();
    }
    conditions
}

fn status() -> Value {
    json!({
        "type": "object",
        "properties": {
            "currentStatus": text("valid, invalid or orphaned.", 64),
            "description": text("Human-readable summary.", 32768),
            "conditions": conditions(),
            "loadBalancer": {"type": "object", "properties": {"ingress": {
                "type": "array",
                "items": {"type": "object", "properties": {
                    "ip": text("IP address.", 64),
                    "ipMode": text("VIP or Proxy.", 16),
                    "hostname": text("Hostname.", 253),
                    "ports": {"type": "array", "items": {
                        "type": "object",
                        "required": ["port", "protocol"],
                        "properties": {
                            "port": {"type": "integer", "format": "int32", "description": "The port."},
                            "protocol": text("TCP, UDP or SCTP.", 16),
                            "error": text("Machine-readable problem, if there is one.", 316),
                        },
                    }},
                }},
            }}},
        },
    })
}
