//! The TLS settings of a `ClientTrafficPolicy`.

use serde_json::{Map, Value, json};

use super::super::fields::{RemainingFields, TakenField};
use sesame_proto::tls_parameters::{is_cipher_suite, is_key_exchange_group};

const OPTIONS: &str = "Gateway spec.listeners.tls.options";
const VALIDATION: &str = "Gateway spec.tls.frontend";

/// Returns options for listeners, and the validation of client certificates.
pub(super) fn convert(mut fields: RemainingFields) -> (Map<String, Value>, Option<Value>) {
    let mut options = Map::new();
    let mut set = |name: &str, value: Value| {
        options.insert(format!("projectsesame.io/{name}"), value);
    };
    if let Some(field) = fields.take("minVersion") {
        match field.as_str() {
            "1.2" | "1.3" => set("min-version", field.carry(OPTIONS)),
            "Auto" => field.unneeded("TLS 1.2 is the default"),
            "1.0" | "1.1" => {
                field.differ(OPTIONS, "stricter: Sesame requires TLS 1.2");
            }
            _ => field.refuse("Sesame does not know this version", "use 1.2 or 1.3"),
        }
    }
    if let Some(field) = fields.take("maxVersion") {
        match field.as_str() {
            "1.2" | "1.3" => set("max-version", field.carry(OPTIONS)),
            "Auto" => field.unneeded("TLS 1.3 is the default"),
            _ => field.refuse("Sesame requires TLS 1.2", "use 1.2 or 1.3"),
        }
    }
    if let Some(field) = fields.take("ciphers")
        && let Some(names) = names(field, is_cipher_suite)
    {
        set("cipher-suites", names);
    }
    if let Some(field) = fields.take("ecdhCurves")
        && let Some(names) = names(field, is_key_exchange_group)
    {
        set("key-exchange-groups", names);
    }
    if let Some(field) = fields.take("alpnProtocols")
        && let Some(names) = names(field, |name| ["h2", "http/1.1"].contains(&name))
    {
        set("alpn", names);
    }
    if let Some(field) = fields.take_tuning("session") {
        let difference = "Sesame resumes sessions with its own ticket keys";
        field.differ("Gateway", difference);
    }
    let validation = fields.take("clientValidation");
    let validation = validation.and_then(|field| validation_of(field.fields()));
    (options, validation)
}

/// Returns a list of names as text.
fn names(field: TakenField, is_known: fn(&str) -> bool) -> Option<Value> {
    let list = field.value().as_array().cloned().unwrap_or_default();
    let names: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
    let names = names.filter(|it| !it.is_empty() && it.iter().all(|name| is_known(name)));
    let Some(names) = names else {
        let reason = "the list has an entry that Sesame does not support";
        field.refuse(reason, "list single supported names");
        return None;
    };
    field.carry(OPTIONS);
    Some(json!(names.join(",")))
}

fn validation_of(mut fields: RemainingFields) -> Option<Value> {
    if let Some(field) = fields.take("optional") {
        if field.value() == &Value::Bool(false) {
            field.unneeded("Sesame requires a valid certificate");
        } else {
            let reason = "Sesame has no optional certificates that must be valid";
            field.refuse(reason, "require certificates, or use another listener");
        }
    }
    let refs: Vec<Value> = fields
        .list("caCertificateRefs")
        .into_iter()
        .map(|field| {
            let mut reference = field.carry(VALIDATION);
            if let Some(fields) = reference.as_object_mut() {
                fields.entry("group").or_insert_with(|| json!(""));
                fields.entry("kind").or_insert_with(|| json!("Secret"));
            }
            reference
        })
        .collect();
    if refs.is_empty() {
        let reason = "Sesame validates client certificates only with CA certificates";
        fields.refuse("caCertificateRefs", reason, "refer to CA certificates");
        return None;
    }
    Some(json!({"caCertificateRefs": refs, "mode": "AllowValidOnly"}))
}
