//! Computes a SesameConfiguration's `Accepted` condition.

use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::watch::holds;
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, Reason, TimedCondition, merge,
};

/// Maximum length of a message, which keeps it readable. The CRD allows longer messages.
const MAX_MESSAGE: usize = 4096;

/// Returns a status patch, or `None` if the stored status is up to date.
pub(super) fn patch(
    object: &Value,
    faults: &[String],
    is_own: bool,
    now: Timestamp,
) -> Option<Value> {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    let (status, reason, mut message) = match (faults, is_own) {
        ([], true) => (
            ConditionStatus::True,
            Reason::Accepted,
            "the controller uses it".to_owned(),
        ),
        ([], false) => (
            ConditionStatus::True,
            Reason::Accepted,
            "it can be used as parameters, or by a controller".to_owned(),
        ),
        (faults, true) => (
            ConditionStatus::False,
            Reason::Invalid,
            format!(
                "the last valid version stays in effect: {}",
                faults.join("; ")
            ),
        ),
        (faults, false) => (ConditionStatus::False, Reason::Invalid, faults.join("; ")),
    };
    if message.chars().count() > MAX_MESSAGE {
        message = message.chars().take(MAX_MESSAGE).collect();
    }
    let condition = Condition::new(
        ConditionType::Accepted,
        status,
        reason,
        &message,
        generation,
    );
    let stored = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let stored: Vec<TimedCondition> = stored
        .into_iter()
        .flatten()
        .filter_map(|condition| TimedCondition::deserialize(condition).ok())
        .collect();
    let desired = json!({"conditions": merge(&stored, &[condition], now)});
    let same = object
        .get("status")
        .is_some_and(|stored| holds(stored, &desired));
    (!same).then_some(desired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_rewritten_when_generation_or_judgement_changes() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let later: Timestamp = "2026-01-02T00:00:00Z".parse().expect("a time");
        let mut object = json!({"metadata": {"generation": 3}});
        let first = patch(&object, &[], true, now).expect("a first status");
        let condition = &first["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["observedGeneration"]),
            (&json!("True"), &json!(3))
        );
        object["status"] = first;
        assert_eq!(patch(&object, &[], true, later), None);
        object["metadata"]["generation"] = json!(4);
        let faults = ["spec.hosts.lostAfter: \"1s\": expected 90s to 24h".to_owned()];
        let bad = patch(&object, &faults, true, later).expect("another status");
        let condition = &bad["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["observedGeneration"]),
            (&json!("False"), &json!(4))
        );
        let message = condition["message"].as_str().expect("a message");
        assert!(
            message.contains("last valid version") && message.contains("\"1s\""),
            "{message}"
        );
    }
}
