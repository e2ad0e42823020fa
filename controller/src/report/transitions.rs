//! Finds conditions that turned bad or recovered. A changed message is not a transition, because it
//! may contain the number of hosts.

use std::collections::BTreeMap;

use serde_json::Value;

use sesame_kinds::status::{ConditionStatus, ConditionType, Reason};
use sesame_kinds::world::ObjectKey;

/// Maximum number of transitions per write. A Gateway can lose hundreds of listeners at the same
/// time.
const MAX_AT_ONCE: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(super) is_bad: bool,
    /// `Resolved` if the condition was removed.
    pub(super) reason: String,
    /// The affected part, such as `listener http` or `Gateway edge`; empty for the whole object.
    pub(super) about: String,
    pub(super) message: String,
}

#[derive(Clone, Debug)]
pub(crate) struct ObjectTransitions {
    pub(super) key: ObjectKey,
    pub(super) api_version: String,
    pub(super) all: Vec<Transition>,
}

#[derive(Clone, Copy)]
struct ConditionView<'a> {
    is_bad: bool,
    reason: &'a str,
    message: &'a str,
}

type ConditionViews<'a> = BTreeMap<(String, ConditionType), ConditionView<'a>>;

/// Ignores other controllers' conditions, and stops at [`MAX_AT_ONCE`].
pub(super) fn transitions(before: &Value, after: &Value, controller_name: &str) -> Vec<Transition> {
    let (before, after) = (
        condition_views(before, controller_name),
        condition_views(after, controller_name),
    );
    let turned = after.iter().filter_map(|(of, now)| {
        let old = before.get(of);
        let is_new = match (old, now.is_bad) {
            (Some(old), true) => !old.is_bad || old.reason != now.reason,
            (None, true) => true,
            (old, false) => old.is_some_and(|old| old.is_bad) && !is_awaited(now.reason),
        };
        is_new.then(|| Transition {
            is_bad: now.is_bad,
            reason: now.reason.to_owned(),
            about: of.0.clone(),
            message: now.message.to_owned(),
        })
    });
    let is_there = |about: &str| after.keys().any(|(known, _)| known == about);
    let gone = before
        .iter()
        .filter(|(of, old)| old.is_bad && !after.contains_key(*of) && is_there(&of.0));
    let gone = gone.map(|((about, type_), old)| Transition {
        is_bad: false,
        reason: "Resolved".to_owned(),
        about: about.clone(),
        message: format!("{type_} ({}) no longer applies", old.reason),
    });
    let all = turned.collect::<Vec<_>>().into_iter().chain(gone);
    all.take(MAX_AT_ONCE).collect()
}

/// Returns true if the condition is still undecided.
fn is_awaited(reason: &str) -> bool {
    reason == Reason::Pending.as_str()
}

fn condition_views<'a>(status: &'a Value, controller_name: &str) -> ConditionViews<'a> {
    let mut all = ConditionViews::new();
    add_conditions(&mut all, "", &status["conditions"]);
    for listener in entries(&status["listeners"]) {
        let about = format!("listener {}", text(&listener["name"]));
        add_conditions(&mut all, &about, &listener["conditions"]);
    }
    for (list, field) in [("parents", "parentRef"), ("ancestors", "ancestorRef")] {
        let ours = entries(&status[list]);
        for entry in ours.filter(|entry| entry["controllerName"] == controller_name) {
            add_conditions(&mut all, &named(&entry[field]), &entry["conditions"]);
        }
    }
    all
}

fn add_conditions<'a>(all: &mut ConditionViews<'a>, about: &str, conditions: &'a Value) {
    for condition in entries(conditions) {
        let Some(type_) = ConditionType::parse(text(&condition["type"])) else {
            continue;
        };
        let reason = text(&condition["reason"]);
        let status = ConditionStatus::parse(text(&condition["status"]));
        let view = ConditionView {
            is_bad: status.is_some_and(|status| type_.is_fault(status)) && !is_awaited(reason),
            reason,
            message: text(&condition["message"]),
        };
        all.insert((about.to_owned(), type_), view);
    }
}

fn named(reference: &Value) -> String {
    let kind = reference["kind"].as_str().unwrap_or("Gateway");
    let name = text(&reference["name"]);
    let mut words = match reference["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    };
    if let Some(section) = reference["sectionName"].as_str() {
        words = format!("{words}, listener {section}");
    }
    if let Some(port) = reference["port"].as_u64() {
        words = format!("{words}, port {port}");
    }
    words
}

fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OURS: &str = "example.com/ours";

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message})
    }

    fn route(conditions: &[Value]) -> Value {
        json!({"parents": [
            {"parentRef": {"name": "edge", "sectionName": "http"}, "controllerName": OURS, "conditions": conditions},
            {"parentRef": {"name": "edge"}, "controllerName": "example.com/theirs",
             "conditions": [condition("Accepted", "False", "NotAllowed", "theirs")]},
        ]})
    }

    #[test]
    fn condition_is_reported_when_bad_changed_or_recovered() {
        let good = route(&[condition("ResolvedRefs", "True", "ResolvedRefs", "")]);
        let bad = |reason, message| route(&[condition("ResolvedRefs", "False", reason, message)]);
        let found = transitions(&good, &bad("BackendNotFound", "no Service a"), OURS);
        let expected = Transition {
            is_bad: true,
            reason: "BackendNotFound".to_owned(),
            about: "Gateway edge, listener http".to_owned(),
            message: "no Service a".to_owned(),
        };
        assert_eq!(found, [expected]);
        let (before, after) = (bad("BackendNotFound", "a"), bad("BackendNotFound", "b"));
        assert_eq!(transitions(&before, &after, OURS), []);
        let found = transitions(&before, &bad("RefNotPermitted", "a"), OURS);
        assert_eq!(found.len(), 1);
        assert!(found[0].is_bad);
        let found = transitions(&before, &good, OURS);
        assert_eq!(found.len(), 1);
        assert!(!found[0].is_bad);
        assert_eq!(transitions(&Value::Null, &good, OURS), []);
        assert_eq!(
            transitions(&bad("BackendNotFound", "a"), &json!({}), OURS),
            []
        );
    }

    #[test]
    fn inverted_and_listener_conditions_are_reported_unlike_pending() {
        let listener = |conflicted: &str| {
            let condition = condition("Conflicted", conflicted, "HostnameConflict", "taken");
            json!([{"name": "a", "conditions": [condition]}])
        };
        let programmed = |status: &str, reason: &str| condition("Programmed", status, reason, "");
        let gateway = |conflicted: &str, own: &[Value]| json!({"conditions": own, "listeners": listener(conflicted)});
        let before = gateway("False", &[programmed("False", "Pending")]);
        let after = gateway("True", &[programmed("True", "Programmed")]);
        let found = transitions(&before, &after, OURS);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].is_bad, &*found[0].about), (true, "listener a"));
        let bad = gateway("False", &[programmed("False", "AddressNotAssigned")]);
        assert_eq!(transitions(&bad, &before, OURS), []);

        let partly = condition("PartiallyInvalid", "True", "UnsupportedValue", "");
        let accepted = condition("Accepted", "True", "Accepted", "");
        let before = route(&[partly, accepted.clone()]);
        let found = transitions(&before, &route(&[accepted]), OURS);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].reason, "Resolved");
        assert_eq!(
            found[0].message,
            "PartiallyInvalid (UnsupportedValue) no longer applies"
        );
    }
}
