//! Computes the patch that turns an object's stored status into the desired status.

use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::compose::{ExtensionStatus, IngressStatus, ProxyStatus, Status};
use crate::watch::{OwnStatus, StoredStatus, holds};
use sesame_kinds::api::AddressType;
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, GatewayStatus, GatewayStatusAddress,
    ListenerSetStatus, ListenerStatus, ProxyDetail, merge,
};

/// Maximum length of a message, set by the API. Messages that quote Envoy could exceed it.
const MAX_MESSAGE: usize = 4096;

/// `desired` is `None` if the object is not ours; then only our old entries are removed. Returns
/// `None` if nothing changes.
pub(super) fn patch(
    stored: &StoredStatus,
    desired: Option<&Status>,
    controller_name: &str,
    now: Timestamp,
) -> Option<Value> {
    let object = stored;
    let stored = object.status();
    match desired {
        Some(Status::Class(status)) => own(&stored, json!(status), &status.conditions, &[], now),
        Some(Status::Gateway(status)) => {
            let GatewayStatus {
                addresses,
                conditions,
                listeners,
                attached_listener_sets,
            } = status;
            let fields = json!({
                "addresses": addresses,
                "listeners": listeners,
                "attachedListenerSets": attached_listener_sets,
            });
            own(&stored, fields, conditions, listeners, now)
        }
        Some(Status::ListenerSet(status)) => {
            let ListenerSetStatus {
                gateway: _,
                conditions,
                listeners,
            } = status;
            let fields = json!({ "listeners": listeners });
            own(&stored, fields, conditions, listeners, now)
        }
        Some(Status::Route(status)) => {
            let ours = status.parents.iter().map(|parent| OwnEntry {
                of: json!(parent.parent_ref),
                conditions: &parent.conditions,
            });
            PARENTS.patch(&stored, ours.collect(), controller_name, now)
        }
        Some(Status::Policy(status)) => {
            let ours = status.ancestors.iter().map(|ancestor| OwnEntry {
                of: json!(ancestor.ancestor_ref),
                conditions: &ancestor.conditions,
            });
            ANCESTORS.patch(&stored, ours.collect(), controller_name, now)
        }
        Some(Status::Ingress(status)) => load_balancer(&stored, status),
        Some(Status::HttpProxy(status)) => http_proxy(&stored, status, now),
        Some(Status::Extension(status)) => extension(&stored, status, now),
        // Leave the status of a Gateway or GatewayClass, because its new controller overwrites it.
        None => [PARENTS, ANCESTORS]
            .iter()
            .find(|list| stored.get(list.field).is_some())
            .map_or_else(
                || cleared(object),
                |list| list.patch(&stored, Vec::new(), controller_name, now),
            ),
    }
}

/// Returns `None` if the stored status is already equal.
fn load_balancer(stored: &Value, status: &IngressStatus) -> Option<Value> {
    let IngressStatus {
        addresses,
        ports,
        fault,
    } = status;
    let error = fault.map(|reason| format!("projectsesame.io/{}", reason.as_str()));
    let port = |port: &u16| match &error {
        Some(error) => json!({"port": port, "protocol": "TCP", "error": error}),
        None => json!({"port": port, "protocol": "TCP"}),
    };
    let ports: Vec<Value> = ports.iter().map(port).collect();
    let mut wanted: Vec<Value> = addresses.iter().map(entry_of).collect();
    for entry in &mut wanted {
        entry["ports"] = json!(ports);
    }
    let old = stored["loadBalancer"]["ingress"].as_array();
    if wanted.iter().eq(old.into_iter().flatten()) {
        return None;
    }
    let wanted = if wanted.is_empty() {
        Value::Null
    } else {
        json!(wanted)
    };
    Some(json!({"loadBalancer": {"ingress": wanted}}))
}

fn entry_of(address: &GatewayStatusAddress) -> Value {
    match address.type_ {
        AddressType::Hostname => json!({"hostname": address.value}),
        _ => json!({"ip": address.value}),
    }
}

/// Contour uses the same message, and other programs rely on it.
const VALID: &str = "Valid HTTPProxy";
const INVALID: &str = "At least one error present, see Errors for details";
const NOT_RECONCILED: &str = "NotReconciled";
const NOT_DESCRIBED: &str = "Waiting for controller";

/// Keeps conditions of other types. Returns `None` if nothing changes.
fn http_proxy(stored: &Value, status: &ProxyStatus, now: Timestamp) -> Option<Value> {
    let ProxyStatus {
        valid,
        details,
        addresses,
    } = status;
    let is_valid = valid.status == ConditionStatus::True;
    let orphaned = details.iter().find(|detail| detail.type_ == "Orphaned");
    let message = if is_valid { VALID } else { INVALID };
    let condition = Condition {
        message: message.to_owned(),
        ..valid.clone()
    };
    let conditions = with_valid(stored, condition, details, now);
    let addresses: Vec<Value> = addresses.iter().map(entry_of).collect();
    let (current, description) = match orphaned {
        Some(detail) => ("orphaned", detail.message.as_str()),
        None if is_valid => ("valid", message),
        None => ("invalid", message),
    };
    let mut patched = json!({
        "currentStatus": current,
        "description": description,
        "conditions": conditions,
        "loadBalancer": if addresses.is_empty() { json!({}) } else { json!({"ingress": addresses}) },
    });
    let same = |field: &str| stored[field] == patched[field];
    let equal = ["currentStatus", "description", "conditions", "loadBalancer"].iter();
    if equal.copied().all(same) {
        return None;
    }
    if addresses.is_empty() && !stored["loadBalancer"]["ingress"].is_null() {
        patched["loadBalancer"]["ingress"] = Value::Null;
    }
    Some(patched)
}

/// Returns `None` if nothing changes.
fn extension(stored: &Value, status: &ExtensionStatus, now: Timestamp) -> Option<Value> {
    let ExtensionStatus { valid, details } = status;
    let is_valid = valid.status == ConditionStatus::True;
    let message = if is_valid {
        "Valid ExtensionService"
    } else {
        INVALID
    };
    let condition = Condition {
        message: message.to_owned(),
        ..valid.clone()
    };
    let conditions = json!(with_valid(stored, condition, details, now));
    (stored["conditions"] != conditions).then(|| json!({ "conditions": conditions }))
}

/// Keeps conditions of other types.
fn with_valid(
    stored: &Value,
    condition: Condition,
    details: &[ProxyDetail],
    now: Timestamp,
) -> Vec<Value> {
    let (ours, mut conditions) = own_and_other_conditions(stored);
    let mut timed = timed(&json!(ours), &[condition], now);
    for (field, warning) in [("errors", false), ("warnings", true)] {
        let listed = details.iter().filter(|detail| detail.warning == warning);
        let listed: Vec<Value> = listed.map(sub_condition).collect();
        if !listed.is_empty() {
            timed[0][field] = json!(listed);
        }
    }
    conditions.extend(timed.as_array().into_iter().flatten().cloned());
    conditions
}

/// Removes what this controller or an earlier process wrote to the status of an Ingress, HTTPProxy
/// or ExtensionService that is not ours. Leaves other field managers' entries. Returns `None` if nothing is
/// left to remove.
fn cleared(stored: &StoredStatus) -> Option<Value> {
    let OwnStatus {
        load_balancer,
        valid,
        summary,
    } = stored.own;
    if stored.own == OwnStatus::default() {
        return None;
    }
    let before = stored.status();
    let mut after = Map::new();
    if load_balancer && !before["loadBalancer"]["ingress"].is_null() {
        after.insert("loadBalancer".to_owned(), json!({"ingress": null}));
    }
    let (own, others) = own_and_other_conditions(&before);
    if valid && !own.is_empty() {
        after.insert("conditions".to_owned(), json!(others));
    }
    let texts = [
        ("currentStatus", NOT_RECONCILED),
        ("description", NOT_DESCRIBED),
    ];
    for (field, text) in texts {
        if summary && before[field] != text {
            after.insert(field.to_owned(), json!(text));
        }
    }
    (!after.is_empty()).then_some(Value::Object(after))
}

fn own_and_other_conditions(stored: &Value) -> (Vec<Value>, Vec<Value>) {
    let all = stored["conditions"].as_array().into_iter().flatten();
    all.cloned()
        .partition(|condition| condition["type"] == ConditionType::Valid.as_str())
}

fn sub_condition(detail: &ProxyDetail) -> Value {
    let ProxyDetail {
        warning: _,
        type_,
        reason,
        message,
    } = detail;
    json!({"type": type_, "reason": reason, "status": "True", "message": shortened(message)})
}

fn shortened(message: &str) -> &str {
    let end = message.char_indices().nth(MAX_MESSAGE);
    end.and_then(|(end, _)| message.get(..end))
        .unwrap_or(message)
}

/// Used for kinds with only one status writer. Returns `None` if nothing changes.
fn own(
    stored: &Value,
    mut status: Value,
    conditions: &[Condition],
    listeners: &[ListenerStatus],
    now: Timestamp,
) -> Option<Value> {
    status["conditions"] = timed(&stored["conditions"], conditions, now);
    let old = stored["listeners"].as_array();
    for (index, listener) in listeners.iter().enumerate() {
        let mut old = old.into_iter().flatten();
        let old = old.find(|old| old["name"] == *listener.name);
        let old = old.map_or(&Value::Null, |old| &old["conditions"]);
        status["listeners"][index]["conditions"] = timed(old, &listener.conditions, now);
    }
    (!holds(stored, &status)).then_some(status)
}

#[derive(Clone, Copy)]
struct SharedList {
    field: &'static str,
    /// Name of the field that references a parent or ancestor.
    of: &'static str,
    most: usize,
}

const PARENTS: SharedList = SharedList {
    field: "parents",
    of: "parentRef",
    most: 32,
};
const ANCESTORS: SharedList = SharedList {
    field: "ancestors",
    of: "ancestorRef",
    most: 16,
};

struct OwnEntry<'a> {
    of: Value,
    conditions: &'a [Condition],
}

impl SharedList {
    fn patch(
        self,
        stored: &Value,
        ours: Vec<OwnEntry<'_>>,
        controller_name: &str,
        now: Timestamp,
    ) -> Option<Value> {
        let entries = stored[self.field].as_array();
        let is_ours = |entry: &&Value| entry["controllerName"] == controller_name;
        let (old, foreign): (Vec<&Value>, Vec<&Value>) =
            entries.into_iter().flatten().partition(is_ours);
        // If the list is full, existing entries stay.
        let room = self.most.saturating_sub(foreign.len());
        let known = |entry: &OwnEntry<'_>| old.iter().any(|before| before[self.of] == entry.of);
        let mut room_for_new =
            room.saturating_sub(ours.iter().filter(|entry| known(entry)).count());
        let new: Vec<Value> = ours
            .into_iter()
            .filter(|entry| {
                if known(entry) {
                    return true;
                }
                let fits = room_for_new > 0;
                room_for_new = room_for_new.saturating_sub(1);
                fits
            })
            .take(room)
            .map(|OwnEntry { of, conditions }| {
                let before = old.iter().find(|before| before[self.of] == of);
                let before = before.map_or(&Value::Null, |before| &before["conditions"]);
                json!({
                    self.of: of,
                    "controllerName": controller_name,
                    "conditions": timed(before, conditions, now),
                })
            })
            .collect();
        if new.iter().eq(old) {
            return None;
        }
        let all: Vec<Value> = foreign.into_iter().cloned().chain(new).collect();
        Some(json!({ self.field: all }))
    }
}

/// Overwrites invalid stored conditions.
fn timed(old: &Value, new: &[Condition], now: Timestamp) -> Value {
    let old = Vec::deserialize(old).unwrap_or_default();
    let mut merged = merge(&old, new, now);
    for condition in &mut merged {
        let length = shortened(&condition.message).len();
        condition.message.truncate(length);
    }
    json!(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Received;
    use sesame_kinds::api::ParentRef;
    use sesame_kinds::status::{
        ConditionStatus, ConditionType, Reason, RouteParentStatus, RouteStatus,
    };
    use sesame_kinds::world::Kind;

    const OURS: &str = "example.com/ours";

    fn stored(status: &Value) -> StoredStatus {
        let object = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "status": status});
        let received: Received = serde_json::from_value(object).expect("an object");
        StoredStatus::of(Kind::HttpRoute, "v1", &received, "").expect("a route has a status")
    }

    fn layered(kind: Kind, status: &Value, own: OwnStatus) -> StoredStatus {
        let object = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "status": status});
        let received: Received = serde_json::from_value(object).expect("an object");
        let mut stored = StoredStatus::of(kind, "v1", &received, "").expect("it has a status");
        stored.own = own;
        stored
    }

    #[test]
    fn unmanaged_status_loses_only_own_parts() {
        let seen = json!({"type": "example.com/Seen", "status": "True"});
        let valid = json!({"type": "Valid", "status": "True"});
        let addresses = json!({"ingress": [{"ip": "192.0.2.1"}]});
        let proxy = json!({"currentStatus": "valid", "description": "Valid HTTPProxy",
            "conditions": [seen, valid], "loadBalancer": addresses});
        let all = OwnStatus {
            load_balancer: true,
            valid: true,
            summary: true,
        };
        let cleared =
            |kind, status: &Value, own| patch(&layered(kind, status, own), None, OURS, now(5));
        let whole = json!({"currentStatus": "NotReconciled", "description": "Waiting for controller",
            "conditions": [seen], "loadBalancer": {"ingress": null}});
        assert_eq!(cleared(Kind::HttpProxy, &proxy, all), Some(whole.clone()));
        let address = OwnStatus {
            load_balancer: true,
            ..OwnStatus::default()
        };
        let only = json!({"loadBalancer": {"ingress": null}});
        assert_eq!(
            cleared(Kind::HttpProxy, &proxy, address),
            Some(only.clone())
        );
        let ingress = json!({"loadBalancer": addresses});
        assert_eq!(cleared(Kind::Ingress, &ingress, address), Some(only));
        for (kind, status) in [(Kind::HttpProxy, &proxy), (Kind::Ingress, &ingress)] {
            assert_eq!(cleared(kind, status, OwnStatus::default()), None, "{kind}");
        }
        // The API server drops null, and the next process changes nothing.
        let mut after = whole;
        after["loadBalancer"] = json!({});
        assert_eq!(cleared(Kind::HttpProxy, &after, all), None);
        assert_eq!(cleared(Kind::Ingress, &json!({}), address), None);
    }

    fn route_status(gateways: &[&str]) -> Status {
        let accepted = Condition::new(
            ConditionType::Accepted,
            ConditionStatus::True,
            Reason::Accepted,
            "good",
            2,
        );
        Status::Route(RouteStatus {
            details: Vec::new(),
            parents: gateways
                .iter()
                .map(|name| RouteParentStatus {
                    parent_ref: ParentRef {
                        name: (*name).to_owned(),
                        ..ParentRef::default()
                    },
                    through: None,
                    controller_name: OURS.to_owned(),
                    ports: Vec::new(),
                    conditions: vec![accepted.clone()],
                })
                .collect(),
        })
    }

    fn now(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn unchanged_status_is_not_rewritten_and_others_stay() {
        let foreign = json!({"parentRef": {"name": "x"}, "controllerName": "other", "conditions": [], "more": 1});
        let before = stored(&json!({"parents": [foreign]}));
        let written =
            patch(&before, Some(&route_status(&["edge"])), OURS, now(5)).expect("a change");
        assert_eq!(written["parents"][0], foreign);
        assert_eq!(
            written["parents"][1]["conditions"][0]["observedGeneration"],
            2
        );
        let after = stored(&written);
        assert_eq!(
            patch(&after, Some(&route_status(&["edge"])), OURS, now(9)),
            None
        );

        let removed = patch(&after, None, OURS, now(9)).expect("a change");
        assert_eq!(removed, json!({"parents": [foreign]}));
        assert_eq!(patch(&stored(&removed), None, OURS, now(9)), None);
    }

    #[test]
    fn existing_entries_stay_when_status_is_full() {
        let names = |written: &Value| -> Vec<String> {
            let entries = written["parents"].as_array().expect("a list");
            let name = |entry: &Value| entry["parentRef"]["name"].as_str().map(str::to_owned);
            entries.iter().filter_map(name).collect()
        };
        let foreign: Vec<Value> = (0..30)
            .map(|i| json!({"parentRef": {"name": format!("x{i}")}, "controllerName": "other", "conditions": []}))
            .collect();
        let before = stored(&json!({ "parents": foreign }));
        let written =
            patch(&before, Some(&route_status(&["m", "n"])), OURS, now(5)).expect("a change");
        let after = stored(&written);
        // `a` sorts first, but must not displace existing entries.
        assert_eq!(
            patch(&after, Some(&route_status(&["a", "m", "n"])), OURS, now(9)),
            None
        );
        let written =
            patch(&after, Some(&route_status(&["a", "b", "n"])), OURS, now(9)).expect("a change");
        assert_eq!(
            names(&written).get(30..),
            Some(&["a".to_owned(), "n".to_owned()][..])
        );
    }

    #[test]
    fn foreign_gateway_conditions_stay_and_missing_are_empty() {
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
        let desired = Status::Gateway(status);
        let before = stored(&json!({"conditions": [foreign]}));
        let written = patch(&before, Some(&desired), OURS, now(5)).expect("a change");
        assert_eq!(written["conditions"][1], foreign);
        let mut sparse = written;
        for field in ["addresses", "listeners", "attachedListenerSets"] {
            sparse.as_object_mut().expect("a map").remove(field);
        }
        assert_eq!(patch(&stored(&sparse), Some(&desired), OURS, now(9)), None);
        assert_eq!(patch(&stored(&sparse), None, OURS, now(9)), None);
    }

    #[test]
    fn proxy_condition_follows_generation_and_is_cut() {
        let foreign = json!({"type": "example.com/Seen", "status": "True", "reason": "Seen",
            "message": "", "observedGeneration": 1, "lastTransitionTime": "2020-01-01T00:00:00Z"});
        let (status, reason) = (ConditionStatus::False, Reason::ErrorPresent);
        let detail = |warning| ProxyDetail {
            warning,
            type_: "RouteError",
            reason: "RequestHeadersPolicyInvalid",
            message: "é".repeat(MAX_MESSAGE + 1),
        };
        let desired = |generation| {
            Status::HttpProxy(ProxyStatus {
                valid: Condition::new(ConditionType::Valid, status, reason, "bad", generation),
                details: vec![detail(false), detail(true)],
                addresses: Vec::new(),
            })
        };
        let before = stored(&json!({"conditions": [foreign]}));
        let first = patch(&before, Some(&desired(1)), OURS, now(5)).expect("a change");
        let second = patch(&stored(&first), Some(&desired(2)), OURS, now(9)).expect("a change");
        let conditions = second["conditions"].as_array().expect("a list");
        let [other, valid] = conditions.as_slice() else {
            panic!("{conditions:?}");
        };
        assert_eq!(*other, foreign);
        assert_eq!(valid["observedGeneration"], 2);
        assert_eq!(
            valid["lastTransitionTime"],
            first["conditions"][1]["lastTransitionTime"]
        );
        for field in ["errors", "warnings"] {
            let message = valid[field][0]["message"].as_str().unwrap_or_default();
            assert_eq!(message.chars().count(), MAX_MESSAGE, "{field}");
        }
        assert_eq!(
            patch(&stored(&second), Some(&desired(2)), OURS, now(12)),
            None
        );
    }
}
