//! Conditions parsed from the JSON of an object's status, for display.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::{ConditionStatus, ConditionType};

/// A condition and its section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownCondition {
    /// The listener, parent or ancestor. Empty for the object itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub section: String,
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status.
    pub status: String,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
}

impl ShownCondition {
    /// Returns true if the condition reports a problem. False for unknown types.
    pub fn is_fault(&self) -> bool {
        let status = match self.status.as_str() {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        };
        ConditionType::parse(&self.type_).is_some_and(|type_| type_.is_fault(status))
    }
}

impl fmt::Display for ShownCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            section,
            type_,
            status,
            reason,
            message,
        } = self;
        if !section.is_empty() {
            write!(f, "{section}: ")?;
        }
        write!(f, "{type_}={status} {reason}: {message}")
    }
}

/// Returns all conditions in a status.
pub fn conditions_of(status: &Value) -> Vec<ShownCondition> {
    let mut all = Vec::new();
    let mut add = |section: String, holder: &Value| {
        for condition in list(holder, "conditions") {
            all.push(ShownCondition {
                section: section.clone(),
                type_: word(condition, "type"),
                status: word(condition, "status"),
                reason: word(condition, "reason"),
                message: word(condition, "message"),
            });
        }
    };
    add(String::new(), status);
    for listener in list(status, "listeners") {
        add(word(listener, "name"), listener);
    }
    for parent in list(status, "parents") {
        add(reference(&parent["parentRef"]), parent);
    }
    for ancestor in list(status, "ancestors") {
        add(reference(&ancestor["ancestorRef"]), ancestor);
    }
    all
}

fn reference(reference: &Value) -> String {
    let mut section = word(reference, "name");
    for extra in ["sectionName", "port"] {
        match &reference[extra] {
            Value::Null => {}
            Value::String(text) => section.extend(["/", text]),
            other => section.extend(["/", &other.to_string()]),
        }
    }
    section
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// Removes line breaks, so that the text fits in a table.
fn word(value: &Value, key: &str) -> String {
    let text = value[key].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
