//! The statuses of objects as values, with the times of their conditions. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use sesame_controller::api::NamespacedName;
use sesame_controller::status::{Condition, ObjectStatus, Section, Statuses};
use sesame_controller::world::Kind;

use super::report::ObjectReport;
use super::seen::Seen;
use super::transitions::Transitions;

/// Every object, by kind and name.
pub(super) fn objects(
    statuses: &Statuses,
    transitions: &Transitions,
    seen: &BTreeMap<NamespacedName, Seen>,
) -> Vec<ObjectReport> {
    // What resolution did not say was said when something was applied.
    let applied_at = |gateway: &NamespacedName| seen.get(gateway).and_then(|seen| seen.applied_at);
    let last_applied = seen.values().filter_map(|seen| seen.applied_at).max();
    statuses
        .objects()
        .map(|(kind, name, status)| {
            let (mut value, otherwise) = match status {
                ObjectStatus::GatewayClass(status) => (value(status), None),
                ObjectStatus::Gateway(status) => (value(status), applied_at(name)),
                ObjectStatus::ListenerSet(status) => (value(status), applied_at(&status.gateway)),
                ObjectStatus::Route(status) => (value(status), last_applied),
                ObjectStatus::Policy(status) => (value(status), last_applied),
            };
            for (section, conditions) in status.sections() {
                let holder = match section {
                    Section::Object => &mut value,
                    Section::Listener(index, _) => &mut value["listeners"][index],
                    Section::Parent(index) => &mut value["parents"][index],
                    Section::Ancestor(index) => &mut value["ancestors"][index],
                };
                stamp(holder, conditions, |condition| {
                    transitions
                        .since(kind, name, section, condition)
                        .or(otherwise)
                });
            }
            object(kind, name, value)
        })
        .collect()
}

fn value(status: &impl serde::Serialize) -> Value {
    // The statuses are plain data; were one not, an empty status is the honest answer.
    serde_json::to_value(status).unwrap_or_default()
}

/// Adds `lastTransitionTime` to the serialised conditions.
fn stamp(
    holder: &mut Value,
    conditions: &[Condition],
    since: impl Fn(&Condition) -> Option<Timestamp>,
) {
    for (index, condition) in conditions.iter().enumerate() {
        let Some(time) = since(condition) else {
            continue;
        };
        if let Some(Value::Object(fields)) = holder["conditions"].get_mut(index) {
            // Kubernetes writes whole seconds.
            let seconds = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            fields.insert("lastTransitionTime".to_owned(), json!(seconds));
        }
    }
}

fn object(kind: Kind, name: &NamespacedName, status: Value) -> ObjectReport {
    ObjectReport {
        kind: kind.to_string(),
        namespace: name.namespace.clone(),
        name: name.name.clone(),
        status,
    }
}
