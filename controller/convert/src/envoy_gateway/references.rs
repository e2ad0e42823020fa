//! Changes references to Envoy Gateway's objects in other objects.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::verdicts::{FieldVerdict, VerdictLog};
use super::GROUP;
use super::filters::{PORT_NAME, backend_port, service_name};
use sesame_kinds::api::SESAME_GROUP;

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
        // A grant for all Backends must not become one for all Services.
        let reason = "the reference would permit all Services, not only those of Backends; name \
            each Backend";
        return Err(reason.to_owned());
    }
    let Some(port) = draft.input(&referenced).and_then(backend_port) else {
        return Err(format!("{referenced} has no address"));
    };
    let section = fields.get("sectionName").and_then(Value::as_str);
    if let Some(section) = section {
        // A Backend's section is a port number; a Service's section is a port name.
        if section != port.to_string() {
            return Err(format!("{referenced} has no port {section}"));
        }
        fields.insert("sectionName".to_owned(), json!(PORT_NAME));
    }
    fields.insert("name".to_owned(), json!(service_name(&name)));
    // Targets of policies and permissions have no port.
    if own.kind.ends_with("Route") || own.kind == "SecurityPolicy" {
        fields.insert("port".to_owned(), json!(port));
    }
    Ok("refers to the Service that replaces the Backend".to_owned())
}

fn refuse(log: &VerdictLog, path: &str, reason: &str) {
    log.refuse(path, reason, "remove the reference");
}

/// Returns all objects of Envoy Gateway's group to which a value refers.
pub(super) fn all(value: &Value, namespace: &str) -> Vec<ObjectId> {
    let mut found = Vec::new();
    collect(value, namespace, &mut found);
    found
}

fn collect(value: &Value, namespace: &str, found: &mut Vec<ObjectId>) {
    match value {
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect(item, namespace, found)),
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str);
            if let (Some(GROUP), Some(kind), Some(name)) =
                (text("group"), text("kind"), text("name"))
            {
                let namespace = text("namespace").unwrap_or(namespace);
                found.push(ObjectId::new(kind, namespace, name));
            }
            fields
                .values()
                .for_each(|field| collect(field, namespace, found));
        }
        _ => {}
    }
}
