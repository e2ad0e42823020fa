//! TLS of a Gateway's servers.

use serde_json::{Map, Value, json};
use sesame_proto::tls_parameters::is_cipher_suite;

use super::super::fields::RemainingFields;
use super::super::values::{put, put_list, put_map};

const TLS: &str = "ListenerSet listeners.tls";

/// Returns the TLS settings of a listener.
pub(super) fn settings(mut fields: RemainingFields) -> Option<Value> {
    let mode = fields.take("mode");
    match mode.as_ref().map_or("SIMPLE", |it| it.as_str()) {
        "PASSTHROUGH" => {
            drop(mode.map(|it| it.carry(&format!("{TLS}.mode"))));
            return Some(json!({"mode": "Passthrough"}));
        }
        "SIMPLE" => drop(mode.map(|it| it.carry(&format!("{TLS}.mode")))),
        "AUTO_PASSTHROUGH" | "ISTIO_MUTUAL" => {
            let reason = "the server forwards connections between meshes";
            mode?.refuse(reason, "keep Istio's gateway for it");
            return None;
        }
        _ => {
            let reason = "client certificates are validated for a whole Gateway, not for a host";
            let remedy = "give the host its own Gateway, and set spec.tls.frontend there";
            mode?.refuse(reason, remedy);
        }
    }
    refuse_files(&mut fields);
    let to = format!("{TLS}.certificateRefs");
    let difference = "the Secret must be in the namespace of the Gateway object; Istio reads the \
        namespace of its pods";
    let mut names = Vec::new();
    for name in ["credentialName", "credentialNames"] {
        let Some(field) = fields.take(name) else {
            continue;
        };
        let value = field.value().clone();
        let list = value.as_array().cloned().unwrap_or_else(|| vec![value]);
        names.extend(list.iter().filter_map(Value::as_str).map(str::to_owned));
        field.differ(&to, difference);
    }
    if names.is_empty() {
        fields.refuse(
            "credentialName",
            "there is no certificate",
            "name the Secret",
        );
        return None;
    }
    let mut options = versions(&mut fields);
    if let Some(field) = fields.take("cipherSuites") {
        let list = field.value().as_array().cloned().unwrap_or_default();
        let known: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
        match known.filter(|it| !it.is_empty() && it.iter().all(|name| is_cipher_suite(name))) {
            Some(known) => {
                put(
                    &mut options,
                    "projectsesame.io/cipher-suites",
                    Some(known.join(",")),
                );
                field.carry(&format!("{TLS}.options"));
            }
            None => field.refuse("Sesame does not support one of the suites", "remove it"),
        }
    }
    let mut tls = Map::new();
    let refs = names.into_iter().map(|name| json!({ "name": name }));
    put_list(&mut tls, "certificateRefs", refs.collect());
    put_map(&mut tls, "options", options);
    fields.skip("httpsRedirect", "it has no effect on HTTPS");
    Some(tls.into())
}

/// Refuses certificates in files, and settings for client certificates.
fn refuse_files(fields: &mut RemainingFields) {
    for name in ["serverCertificate", "privateKey", "tlsCertificates"] {
        if let Some(field) = fields.take(name) {
            field.refuse("certificates come from Secrets", "use credentialName");
        }
    }
    for name in [
        "caCertificates",
        "caCertCredentialName",
        "caCrl",
        "subjectAltNames",
        "verifyCertificateHash",
        "verifyCertificateSpki",
    ] {
        if let Some(field) = fields.take(name) {
            let reason = "client certificates are validated for a whole Gateway";
            field.refuse(reason, "set spec.tls.frontend of the Gateway");
        }
    }
}

fn versions(fields: &mut RemainingFields) -> Map<String, Value> {
    let mut options = Map::new();
    let to = format!("{TLS}.options");
    for (theirs, ours) in [("minProtocolVersion", "min"), ("maxProtocolVersion", "max")] {
        let Some(field) = fields.take(theirs) else {
            continue;
        };
        let version = match field.as_str() {
            "TLSV1_2" => Some("1.2"),
            "TLSV1_3" => Some("1.3"),
            "TLS_AUTO" => None,
            _ if ours == "min" => {
                field.differ(&to, "stricter: Sesame requires TLS 1.2");
                continue;
            }
            _ => {
                field.refuse("Sesame requires TLS 1.2", "use TLSV1_2 or TLSV1_3");
                continue;
            }
        };
        field.carry(&to);
        put(
            &mut options,
            &format!("projectsesame.io/{ours}-version"),
            version,
        );
    }
    options
}
