//! Compares an object with its replacement field by field.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};
use sesame_kinds::api::Quantity;

use super::defaults::with_defaults;
use crate::provision::fleet::RELEASED_ANNOTATION;
use crate::provision::kept::WRITTEN_ANNOTATION;
use crate::provision::owned::{CONTROLLER_ANNOTATION, DIGEST_ANNOTATION, OWNER_ANNOTATION};
use sesame_published::names::GATEWAY_ANNOTATION;

/// Adoption always changes these annotations.
const BOOKKEEPING: [&str; 6] = [
    CONTROLLER_ANNOTATION,
    DIGEST_ANNOTATION,
    GATEWAY_ANNOTATION,
    OWNER_ANNOTATION,
    RELEASED_ANNOTATION,
    WRITTEN_ANNOTATION,
];
/// Changes below this path restart Pods.
const TEMPLATE: &str = "spec.template.";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FieldChange {
    /// Such as `spec.template.spec.containers[agent].image`.
    pub(crate) field: String,
    /// Null if the field is new.
    pub(crate) before: Value,
    /// Null if the field is removed.
    pub(crate) after: Value,
}

impl FieldChange {
    pub(crate) fn restarts_pods(&self) -> bool {
        self.field.starts_with(TEMPLATE)
    }
}

/// Ignores the status, ownership annotations, and values that the API server fills in.
pub(super) fn changes(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut found = Vec::new();
    differ("", &comparable(before), &comparable(after), &mut found);
    found
}

fn comparable(object: &Value) -> Value {
    let mut counts = object.as_object().cloned().unwrap_or_default();
    counts.retain(|name, _| !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()));
    let mut metadata = Map::new();
    for part in ["labels", "annotations"] {
        let mut entries = object["metadata"][part].as_object().cloned();
        if let Some(entries) = &mut entries {
            entries.retain(|name, _| part == "labels" || !BOOKKEEPING.contains(&name.as_str()));
        }
        metadata.insert(part.to_owned(), Value::from(entries.unwrap_or_default()));
    }
    counts.insert("metadata".to_owned(), metadata.into());
    with_defaults(counts.into())
}

fn differ(path: &str, before: &Value, after: &Value, found: &mut Vec<FieldChange>) {
    if is_nothing(before) && is_nothing(after) {
        return;
    }
    match (before, after) {
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                differ(&below(path, name), &before[name], &after[name], found);
            }
        }
        (Value::Array(left), Value::Array(right)) if correspond(left, right) => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                let name = left["name"].as_str();
                let at = name.map_or_else(|| index.to_string(), str::to_owned);
                differ(&format!("{path}[{at}]"), left, right, found);
            }
        }
        _ if before == after || is_same_quantity(path, before, after) => {}
        _ => found.push(FieldChange {
            field: path.to_owned(),
            before: before.clone(),
            after: after.clone(),
        }),
    }
}

/// Returns true for null and empty values, which the API omits.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    }
}

fn correspond(left: &[Value], right: &[Value]) -> bool {
    let mut pairs = left.iter().zip(right);
    left.len() == right.len() && pairs.all(|(left, right)| left["name"] == right["name"])
}

/// Compares quantities by value, because the API server rewrites some of them.
fn is_same_quantity(path: &str, before: &Value, after: &Value) -> bool {
    let number = |value: &Value| Quantity(value.as_str()?.to_owned()).billionths();
    path.contains(".resources.") && number(before).is_some() && number(before) == number(after)
}

fn below(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path if name.contains(['.', '/']) => format!("{path}[{name}]"),
        path => format!("{path}.{name}"),
    }
}
