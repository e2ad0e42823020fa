//! The change from the status that is stored to the one that is to be said. Pure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::said::Status;
use super::stored::Stored;
use crate::status::{
    Condition, GatewayClassStatus, GatewayStatus, ListenerStatus, RouteStatus, TimedCondition,
    merge,
};

/// What the API allows of a message; ours stay far below, but Envoy's words may be in it.
const MAX_MESSAGE: usize = 4096;
/// The most parents that a route's status holds.
const MAX_PARENTS: usize = 32;

/// The new `status` for a merge patch; none if what is stored says it already.
///
/// `said` is none when the object is not ours: then only entries that we once wrote are taken out.
pub(super) fn patch(
    stored: &Stored,
    said: Option<&Status>,
    controller_name: &str,
    now: Timestamp,
) -> Option<Value> {
    let stored = stored.status();
    match said {
        Some(Status::Class(status)) => class(&stored, status, now),
        Some(Status::Gateway(status)) => gateway(&stored, status, now),
        Some(Status::Route(status)) => route(&stored, status, controller_name, now),
        // Another's Gateway or class holds nothing that is ours alone; its new controller writes over it.
        None if stored.get("parents").is_some() => {
            route(&stored, &RouteStatus::default(), controller_name, now)
        }
        None => None,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct ClassFields {
    conditions: Vec<TimedCondition>,
    supported_features: Vec<Value>,
}

fn class(stored: &Value, status: &GatewayClassStatus, now: Timestamp) -> Option<Value> {
    let GatewayClassStatus {
        conditions,
        supported_features,
    } = status;
    let old: ClassFields = fields(stored);
    let new = ClassFields {
        conditions: timed(&old.conditions, conditions, now),
        supported_features: supported_features
            .iter()
            .map(|feature| json!(feature))
            .collect(),
    };
    (new != old).then(|| json!(new))
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct GatewayFields {
    addresses: Vec<Value>,
    conditions: Vec<TimedCondition>,
    listeners: Vec<ListenerFields>,
    attached_listener_sets: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct ListenerFields {
    name: String,
    supported_kinds: Vec<Value>,
    attached_routes: i32,
    conditions: Vec<TimedCondition>,
}

fn gateway(stored: &Value, status: &GatewayStatus, now: Timestamp) -> Option<Value> {
    let GatewayStatus {
        addresses,
        conditions,
        listeners,
        attached_listener_sets,
    } = status;
    let old: GatewayFields = fields(stored);
    let listener = |listener: &ListenerStatus| {
        let ListenerStatus {
            name,
            supported_kinds,
            attached_routes,
            conditions,
        } = listener;
        let before = old.listeners.iter().find(|before| before.name == *name);
        let before = before.map(|before| before.conditions.as_slice());
        ListenerFields {
            name: name.clone(),
            supported_kinds: supported_kinds.iter().map(|kind| json!(kind)).collect(),
            attached_routes: *attached_routes,
            conditions: timed(before.unwrap_or_default(), conditions, now),
        }
    };
    let new = GatewayFields {
        addresses: addresses.iter().map(|address| json!(address)).collect(),
        conditions: timed(&old.conditions, conditions, now),
        listeners: listeners.iter().map(listener).collect(),
        attached_listener_sets: *attached_listener_sets,
    };
    (new != old).then(|| json!(new))
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct ParentFields {
    parent_ref: Value,
    controller_name: String,
    conditions: Vec<TimedCondition>,
}

fn route(
    stored: &Value,
    status: &RouteStatus,
    controller_name: &str,
    now: Timestamp,
) -> Option<Value> {
    let parents = stored.get("parents").and_then(Value::as_array);
    let is_ours = |parent: &&Value| {
        parent.get("controllerName").and_then(Value::as_str) == Some(controller_name)
    };
    let (ours, foreign): (Vec<&Value>, Vec<&Value>) =
        parents.into_iter().flatten().partition(is_ours);
    let old: Vec<ParentFields> = ours.into_iter().map(fields).collect();
    let new: Vec<ParentFields> = status
        .parents
        .iter()
        .take(MAX_PARENTS.saturating_sub(foreign.len()))
        .map(|parent| {
            let parent_ref = json!(parent.parent_ref);
            let before = old.iter().find(|before| before.parent_ref == parent_ref);
            let before = before.map(|before| before.conditions.as_slice());
            ParentFields {
                conditions: timed(before.unwrap_or_default(), &parent.conditions, now),
                controller_name: parent.controller_name.clone(),
                parent_ref,
            }
        })
        .collect();
    if new == old {
        return None;
    }
    let all: Vec<Value> = foreign
        .into_iter()
        .cloned()
        .chain(new.into_iter().map(|parent| json!(parent)))
        .collect();
    Some(json!({ "parents": all }))
}

/// The fields that we know; none of what is not as the API has it, which is then written anew.
fn fields<T: Default + for<'de> Deserialize<'de>>(stored: &Value) -> T {
    T::deserialize(stored).unwrap_or_default()
}

fn timed(old: &[TimedCondition], new: &[Condition], now: Timestamp) -> Vec<TimedCondition> {
    let mut merged = merge(old, new, now);
    for condition in &mut merged {
        if let Some((cut, _)) = condition.message.char_indices().nth(MAX_MESSAGE) {
            condition.message.truncate(cut);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ParentRef;
    use crate::status::{ConditionStatus, ConditionType, Reason, RouteParentStatus};
    use crate::watch::Incoming;
    use crate::world::Kind;

    const OURS: &str = "example.com/ours";

    fn stored(status: &Value) -> Stored {
        let object = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "status": status});
        let incoming: Incoming = serde_json::from_value(object).expect("an object");
        Stored::of(Kind::HttpRoute, "v1", &incoming).expect("a route has a status")
    }

    fn said(gateways: &[&str]) -> Status {
        let accepted = Condition::new(
            ConditionType::Accepted,
            ConditionStatus::True,
            Reason::Accepted,
            "good",
            2,
        );
        Status::Route(RouteStatus {
            parents: gateways
                .iter()
                .map(|name| RouteParentStatus {
                    parent_ref: ParentRef {
                        name: (*name).to_owned(),
                        ..ParentRef::default()
                    },
                    controller_name: OURS.to_owned(),
                    conditions: vec![accepted.clone()],
                })
                .collect(),
        })
    }

    fn now(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn what_was_written_needs_no_second_write_and_leaves_others_alone() {
        let foreign = json!({"parentRef": {"name": "x"}, "controllerName": "other", "conditions": [], "more": 1});
        let before = stored(&json!({"parents": [foreign]}));
        let written = patch(&before, Some(&said(&["edge"])), OURS, now(5)).expect("a change");
        assert_eq!(written["parents"][0], foreign);
        assert_eq!(
            written["parents"][1]["conditions"][0]["observedGeneration"],
            2
        );
        let after = stored(&written);
        assert_eq!(patch(&after, Some(&said(&["edge"])), OURS, now(9)), None);

        let removed = patch(&after, None, OURS, now(9)).expect("a change");
        assert_eq!(removed, json!({"parents": [foreign]}));
        assert_eq!(patch(&stored(&removed), None, OURS, now(9)), None);
    }

    #[test]
    fn a_gateways_foreign_conditions_stay_and_what_it_lacks_counts_as_empty() {
        let foreign = json!({"type": "example.com/Seen", "status": "True", "reason": "Seen",
            "message": "", "observedGeneration": 1, "lastTransitionTime": "2020-01-01T00:00:00Z"});
        let status = GatewayStatus {
            conditions: vec![Condition::new(
                ConditionType::Accepted,
                ConditionStatus::True,
                Reason::Accepted,
                &"x".repeat(9000),
                1,
            )],
            ..GatewayStatus::default()
        };
        let said = Status::Gateway(status);
        let before = stored(&json!({"conditions": [foreign]}));
        let written = patch(&before, Some(&said), OURS, now(5)).expect("a change");
        assert_eq!(written["conditions"][1], foreign);
        let mut sparse = written;
        for field in ["addresses", "listeners", "attachedListenerSets"] {
            sparse.as_object_mut().expect("a map").remove(field);
        }
        assert_eq!(patch(&stored(&sparse), Some(&said), OURS, now(9)), None);
        assert_eq!(patch(&stored(&sparse), None, OURS, now(9)), None);
    }
}
