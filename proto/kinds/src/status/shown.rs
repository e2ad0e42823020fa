//! Conditions parsed from the JSON of an object's status, for display.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::Value;

use super::{ConditionStatus, ConditionType};

/// Shown like a condition, because an Ingress has none.
const PORT_ERROR: &str = "ports[].error";

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
        let type_ = ConditionType::parse(&self.type_);
        self.type_ == PORT_ERROR || type_.is_some_and(|type_| type_.is_fault(status))
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
                message: message(condition),
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
    // The controller writes the same error to all ports of all addresses.
    let ports = list(&status["loadBalancer"]["ingress"][0], "ports").iter();
    let mut errors = ports.map(|port| word(port, "error"));
    if let Some(error) = errors.find(|error| !error.is_empty()) {
        all.push(ShownCondition {
            section: String::new(),
            type_: PORT_ERROR.to_owned(),
            status: ConditionStatus::True.as_str().to_owned(),
            reason: error,
            message: "see the object's Events".to_owned(),
        });
    }
    all
}

/// Includes the errors and warnings that an HTTPProxy lists beside the message.
fn message(condition: &Value) -> String {
    let mut message = word(condition, "message");
    for (field, what) in [("errors", "error"), ("warnings", "warning")] {
        for detail in list(condition, field) {
            let [type_, reason, why] = ["type", "reason", "message"].map(|key| word(detail, key));
            // Writing to a String cannot fail.
            let _ = write!(message, "; {what} {type_}/{reason}: {why}");
        }
    }
    message
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_of_proxies_and_ingresses_are_shown() {
        let detail = |type_, reason| json!({"type": type_, "reason": reason, "message": "why"});
        let valid = json!({"type": "Valid", "status": "False", "reason": "ErrorPresent",
            "message": "see Errors", "errors": [detail("TLSError", "SecretNotValid")],
            "warnings": [detail("SpecError", "IgnoredField")]});
        let port = |error: &str| json!({"port": 80, "error": error});
        let ports = json!([{"port": 443}, port("projectsesame.io/BackendNotFound")]);
        for (status, expected) in [
            (
                json!({"conditions": [valid]}),
                "Valid=False ErrorPresent: see Errors; error TLSError/SecretNotValid: why; \
                 warning SpecError/IgnoredField: why",
            ),
            (
                json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ports": ports}]}}),
                "ports[].error=True projectsesame.io/BackendNotFound: see the object's Events",
            ),
        ] {
            let all = conditions_of(&status);
            let [shown] = all.as_slice() else {
                panic!("one condition: {status}");
            };
            assert_eq!(shown.to_string(), expected);
            assert!(shown.is_fault());
        }
        assert_eq!(conditions_of(&json!({"loadBalancer": {}})), []);
    }
}
