//! Changes references to Envoy Gateway's objects in other objects.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::verdicts::{FieldVerdict, RefusedField, VerdictLog};
use super::GROUP;
use super::filters::{backend_port, service_name};
use sesame_gateway_api::api::SESAME_GROUP;

/// Maximum nesting of the values that are searched.
const MAX_DEPTH: usize = 48;

/// Kinds that become one of Sesame's kinds. The names of the objects stay the same.
const RENAMED: &[(&str, &str)] = &[
    ("HTTPRouteFilter", "RouteFilter"),
    ("EnvoyProxy", "SesameConfiguration"),
    ("SecurityPolicy", "AccessPolicy"),
    ("BackendTrafficPolicy", "TrafficPolicy"),
];

/// Changes all references in `value`, which is at `path` in the object `own`. A reference to an
/// object without a counterpart is refused.
pub(super) fn rewrite(
    draft: &Draft,
    own: &ObjectId,
    path: &str,
    value: &mut Value,
    log: &VerdictLog,
) {
    rewrite_below(draft, own, path, value, log, 0);
}

fn rewrite_below(
    draft: &Draft,
    own: &ObjectId,
    path: &str,
    value: &mut Value,
    log: &VerdictLog,
    depth: usize,
) {
    if depth > MAX_DEPTH {
        refuse(log, path, "the value is nested too deeply");
        return;
    }
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let path = format!("{path}[{index}]");
                rewrite_below(draft, own, &path, item, log, depth + 1);
            }
        }
        Value::Object(fields) if fields.get("group").is_some_and(|group| group == GROUP) => {
            match change(draft, own, fields) {
                Ok(difference) => {
                    let to = format!("{} {path}", own.kind);
                    log.record(path, FieldVerdict::Differs { to, difference });
                }
                Err(reason) => refuse(log, path, &reason),
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                rewrite_below(draft, own, &format!("{path}.{name}"), field, log, depth + 1);
            }
        }
        _ => {}
    }
}

/// Returns the difference.
fn change(
    draft: &Draft,
    own: &ObjectId,
    fields: &mut Map<String, Value>,
) -> Result<String, String> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, name, namespace) = (
        text("kind").to_owned(),
        text("name").to_owned(),
        text("namespace").to_owned(),
    );
    let namespace = if namespace.is_empty() {
        own.namespace.clone()
    } else {
        namespace
    };
    let referenced = ObjectId::new(&kind, &namespace, &name);
    if !name.is_empty() && draft.input(&referenced).is_none() {
        return Err(format!("the input has no {referenced}"));
    }
    if let Some((_, ours)) = RENAMED.iter().find(|(theirs, _)| *theirs == kind) {
        fields.insert("group".to_owned(), json!(SESAME_GROUP));
        fields.insert("kind".to_owned(), json!(ours));
        return Ok(format!("refers to a {ours}"));
    }
    if kind != "Backend" {
        return Err(format!("{kind} has no counterpart in Sesame"));
    }
    fields.insert("group".to_owned(), json!(""));
    fields.insert("kind".to_owned(), json!("Service"));
    if name.is_empty() {
        return Ok("permits references to all Services".to_owned());
    }
    let Some(port) = draft.input(&referenced).and_then(backend_port) else {
        return Err(format!("{referenced} has no address"));
    };
    fields.insert("name".to_owned(), json!(service_name(&name)));
    // Targets of policies and permissions have no port.
    if own.kind.ends_with("Route") || own.kind == "SecurityPolicy" {
        fields.insert("port".to_owned(), json!(port));
    }
    Ok("refers to the Service that replaces the Backend".to_owned())
}

fn refuse(log: &VerdictLog, path: &str, reason: &str) {
    let refused = RefusedField {
        reason: reason.to_owned(),
        remedy: "remove the reference".to_owned(),
        protects: true,
        accepted: false,
    };
    log.record(path, FieldVerdict::Refused(refused));
}

/// Returns true if a value refers to an object of Envoy Gateway's group.
pub(super) fn refers(value: &Value, namespace: &str, to: &ObjectId) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| refers(item, namespace, to)),
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str);
            let is_reference = text("group") == Some(GROUP)
                && text("kind") == Some(to.kind.as_str())
                && text("name") == Some(to.name.as_str())
                && text("namespace").unwrap_or(namespace) == to.namespace;
            is_reference || fields.values().any(|field| refers(field, namespace, to))
        }
        _ => false,
    }
}
