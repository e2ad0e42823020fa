//! TLS of a DestinationRule becomes a BackendTLSPolicy.

use serde_json::{Map, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::routing;
use super::super::values::{put, put_list};

const TLS: &str = "BackendTLSPolicy spec.validation";

pub(super) fn convert(
    draft: &mut Draft,
    id: &ObjectId,
    service: &ObjectId,
    mut fields: RemainingFields,
) {
    let Some(mode) = fields.take("mode") else {
        for name in fields.names() {
            fields.skip(&name, "connections have no TLS without mode");
        }
        return;
    };
    let mut is_verified = false;
    match mode.as_str() {
        "DISABLE" => mode.unneeded("connections have no TLS by default"),
        "SIMPLE" => {
            is_verified = true;
            mode.differ("BackendTLSPolicy", "all routes to the Service use TLS");
        }
        "MUTUAL" => mode.refuse(
            "the Gateway has one certificate for all backends",
            "set spec.tls.backend of the Gateway, and write a BackendTLSPolicy",
        ),
        _ => mode.refuse(
            "Sesame has no certificate of the mesh, so connections have no TLS",
            "write a BackendTLSPolicy, or put Sesame's pods into the mesh and accept the loss",
        ),
    }
    is_verified &= can_verify(&mut fields);
    let mut validation = Map::new();
    match fields.take("credentialName") {
        Some(field) => {
            let difference = "put ca.crt of the Secret into a ConfigMap of the same name, in the \
                namespace of the Service";
            let reference = json!({"group": "", "kind": "ConfigMap", "name": field.as_str()});
            put_list(&mut validation, "caCertificateRefs", vec![reference]);
            field.differ(&format!("{TLS}.caCertificateRefs"), difference);
        }
        None => put(&mut validation, "wellKnownCACertificates", Some("System")),
    }
    let names = fields.texts("subjectAltNames", &format!("{TLS}.subjectAltNames"));
    let sni = fields.text("sni", &format!("{TLS}.hostname"));
    let host = format!("{}.{}.svc.cluster.local", service.name, service.namespace);
    put(&mut validation, "hostname", Some(sni.unwrap_or(host)));
    let names = names.iter();
    let names = names.map(|name| {
        if name.contains("://") {
            json!({"type": "URI", "uri": name})
        } else {
            json!({"type": "Hostname", "hostname": name})
        }
    });
    put_list(&mut validation, "subjectAltNames", names.collect());
    if is_verified && !routing::add_backend_tls(draft, id, service, &validation) {
        let reason = "another rule verifies the Service's certificate in another way";
        fields.refuse("mode", reason, "use one DestinationRule");
    }
}

/// Returns false if a setting weakens the verification, or names files.
fn can_verify(fields: &mut RemainingFields) -> bool {
    let mut can_verify = true;
    for name in ["clientCertificate", "privateKey"] {
        if let Some(field) = fields.take(name) {
            field.refuse(
                "certificates come from Secrets",
                "set spec.tls.backend of the Gateway",
            );
        }
    }
    for name in ["caCertificates", "caCrl"] {
        if let Some(field) = fields.take(name) {
            let reason = "CA certificates come from ConfigMaps, not from files";
            field.refuse(reason, "write a BackendTLSPolicy");
            can_verify = false;
        }
    }
    if let Some(field) = fields.take("insecureSkipVerify") {
        if field.value() == &json!(false) {
            field.unneeded("certificates are always verified");
        } else {
            field.refuse(
                "certificates are always verified",
                "write a BackendTLSPolicy",
            );
            can_verify = false;
        }
    }
    can_verify
}
