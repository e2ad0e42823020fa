//! Converts the statuses of objects to JSON, with the transition times of their conditions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use sesame_kinds::api::{NamespacedName, ParentRef};
use sesame_kinds::status::{Condition, ObjectStatus, Section, Statuses};
use sesame_resolver::MergedGateway;

use super::ObjectReport;
use super::transitions::Transitions;
use super::verdicts::published_as;
use crate::observed::Observed;

/// Returns the statuses sorted by kind and name.
pub(super) fn objects(
    statuses: &Statuses,
    merged: &BTreeMap<NamespacedName, MergedGateway>,
    transitions: &Transitions,
    observed: &BTreeMap<NamespacedName, Observed>,
) -> Vec<ObjectReport> {
    // Used for conditions that resolution does not set.
    let applied_at = |gateway: &NamespacedName| {
        observed
            .get(published_as(merged, gateway))
            .and_then(|observed| observed.applied_at)
    };
    let last_applied = observed
        .values()
        .filter_map(|observed| observed.applied_at)
        .max();
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
            ObjectReport {
                kind: kind.to_string(),
                namespace: name.namespace.clone(),
                name: name.name.clone(),
                gateways: gateways(name, status),
                status: value,
            }
        })
        .collect()
}

fn gateways(name: &NamespacedName, status: ObjectStatus<'_>) -> Vec<String> {
    let referred = |reference: &ParentRef| {
        let is_gateway = reference
            .kind
            .as_deref()
            .is_none_or(|kind| kind == "Gateway");
        let namespace = reference.namespace.as_deref().unwrap_or(&name.namespace);
        is_gateway.then(|| NamespacedName::new(namespace, &reference.name))
    };
    let gateways: BTreeSet<NamespacedName> = match status {
        ObjectStatus::GatewayClass(_) => BTreeSet::new(),
        ObjectStatus::Gateway(_) => BTreeSet::from([name.clone()]),
        ObjectStatus::ListenerSet(status) => BTreeSet::from([status.gateway.clone()]),
        ObjectStatus::Route(status) => status
            .parents
            .iter()
            .filter_map(|parent| {
                let through = parent.through.clone();
                through.or_else(|| referred(&parent.parent_ref))
            })
            .collect(),
        ObjectStatus::Policy(status) => status
            .ancestors
            .iter()
            .filter_map(|ancestor| referred(&ancestor.ancestor_ref))
            .collect(),
    };
    gateways.iter().map(ToString::to_string).collect()
}

fn value(status: &impl serde::Serialize) -> Value {
    // Serializing plain data cannot fail.
    serde_json::to_value(status).unwrap_or_default()
}

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
            // Kubernetes stores whole seconds.
            let seconds = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            fields.insert("lastTransitionTime".to_owned(), json!(seconds));
        }
    }
}
