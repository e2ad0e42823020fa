use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::preview::AdoptionPreview;
use super::*;
use crate::provision::fleet_plan_tests::{basis, carry_out, managed, planned, settled};
use crate::provision::kinds::{OwnedKey, OwnedKind};
use crate::provision::plan::OwnedPlan;
use crate::watch::Received;
use sesame_kinds::api::FleetManagement;

fn released() -> Inventory {
    let mut inventory = settled(&[basis("edge")]);
    let unmanaged = crate::provision::fleet_plan_tests::settings(FleetManagement::Unmanaged);
    let OwnedPlan { writes, .. } = planned(&inventory, &unmanaged);
    carry_out(&mut inventory, writes);
    for (index, found) in inventory.objects.values_mut().enumerate() {
        found.value["metadata"]["uid"] = json!(format!("uid-{index}"));
    }
    inventory
}

fn object<'i>(inventory: &'i mut Inventory, kind: OwnedKind, end: &str) -> &'i mut ExistingObject {
    let mut all = inventory.objects.iter_mut();
    let found = all.find(|(key, _)| key.0 == kind && key.1.name.ends_with(end));
    found.expect("an object").1
}

fn open(inventory: &Inventory) -> (AdoptionPreview, String) {
    let OwnedPlan { writes, report } = planned(inventory, &managed());
    let [OwnedWrite::Create(config_map)] = &writes[..] else {
        panic!("{writes:?}");
    };
    assert_eq!(config_map.key.0, OwnedKind::ConfigMap);
    let gateway = basis("edge").gateway;
    let preview = AdoptionPreview::parse(&config_map.value, &gateway).unwrap();
    (preview, report.without_fleet[&gateway].clone())
}

fn compared(inventory: &Inventory) -> (Vec<ObjectAction>, Option<String>) {
    let (preview, _) = open(inventory);
    let found: Vec<Option<Received>> = preview
        .reads()
        .map(|(resource, name)| {
            let mut all = inventory.objects.iter();
            let found = all.find(|(key, _)| key.0.as_str() == resource.kind && key.1 == *name)?;
            Some(serde_json::from_value(found.1.value.clone()).unwrap())
        })
        .collect();
    let compared = preview.compare(&found);
    assert!(preview.is_current(compared.1.as_deref()));
    compared
}

fn agree(inventory: &mut Inventory, consent: &str) {
    for basis in inventory.gateways.values_mut() {
        basis.adopt = Some(consent.to_owned());
    }
}

fn adopted_keys(writes: &[OwnedWrite]) -> BTreeSet<OwnedKey> {
    let replaced = writes
        .iter()
        .filter(|write| matches!(write, OwnedWrite::Replace { .. }));
    replaced.map(|write| write.key().clone()).collect()
}

#[test]
fn existing_fleet_is_adopted_unchanged_after_consent() {
    let mut inventory = released();
    let (actions, consent) = compared(&inventory);
    assert_eq!(actions.len(), 6);
    for ObjectAction { kind, name, action } in &actions {
        let AdoptionAction::Adopted { changes, .. } = action else {
            panic!("{kind} {name}: {action:?}");
        };
        assert!(changes.is_empty(), "{kind} {name}: {changes:?}");
    }
    let (_, why) = open(&inventory);
    for words in [
        "ServiceAccount web/edge-sesame-agent exists and does not belong to this Gateway, nor do \
        Role",
        "`sesame-controller fleet diff web/edge`",
    ] {
        assert!(why.contains(words), "{why}");
    }

    agree(&mut inventory, &consent.unwrap());
    let before = inventory.objects.clone();
    let OwnedPlan { writes, report } = planned(&inventory, &managed());
    assert!(report.without_fleet.is_empty(), "{report:?}");
    assert_eq!(adopted_keys(&writes).len(), 6, "{writes:?}");
    for write in &writes {
        let OwnedWrite::Replace { object, .. } = write else {
            panic!("{write:?}");
        };
        let found = &before[&object.key].value;
        assert_eq!(object.value["spec"], found["spec"]);
        let annotations = &object.value["metadata"]["annotations"];
        assert_eq!(annotations[RELEASED_ANNOTATION], Value::Null);
    }
    carry_out(&mut inventory, writes);
    assert_eq!(planned(&inventory, &managed()), OwnedPlan::default());
    // Fields from other writers were kept, and the agreement is no longer needed.
    inventory
        .gateways
        .values_mut()
        .for_each(|basis| basis.adopt = None);
    assert_eq!(planned(&inventory, &managed()), OwnedPlan::default());
}

#[test]
fn consent_covers_shown_changes_until_carried_out() {
    let mut inventory = released();
    let launcher = object(&mut inventory, OwnedKind::DaemonSet, "-envoy");
    let image = "/spec/template/spec/containers/0/image";
    *launcher.value.pointer_mut(image).unwrap() = json!("envoy:0");
    launcher.value["metadata"]["labels"]["theirs"] = json!("x");
    launcher.value["status"] = json!({"numberReady": 7});
    let (actions, consent) = compared(&inventory);
    let consent = consent.unwrap();
    let changed: Vec<&FieldChange> = actions
        .iter()
        .filter_map(|of| match &of.action {
            AdoptionAction::Adopted { changes, .. } => Some(changes),
            _ => None,
        })
        .flatten()
        .collect();
    let [change] = &changed[..] else {
        panic!("{changed:?}");
    };
    assert_eq!(
        change.field,
        "spec.template.spec.containers[launcher].image"
    );
    assert_eq!(
        (&change.before, &change.after),
        (&json!("envoy:0"), &json!("envoy:1"))
    );
    assert!(change.restarts_pods());

    // A changed status is irrelevant, but a changed image needs a new agreement.
    agree(&mut inventory, &consent);
    object(&mut inventory, OwnedKind::DaemonSet, "-envoy").value["status"] = json!({});
    let OwnedPlan { writes, .. } = planned(&inventory, &managed());
    assert_eq!(adopted_keys(&writes).len(), 6);
    let mut other = Inventory {
        namespace: inventory.namespace.clone(),
        gateways: inventory.gateways.clone(),
        objects: inventory.objects.clone(),
        ..Inventory::default()
    };
    let launcher = object(&mut other, OwnedKind::DaemonSet, "-envoy");
    *launcher.value.pointer_mut(image).unwrap() = json!("envoy:00");
    let (_, why) = open(&other);
    assert!(
        why.contains("is for another state of these objects"),
        "{why}"
    );
    *object(&mut other, OwnedKind::DaemonSet, "-envoy") =
        object(&mut inventory, OwnedKind::DaemonSet, "-envoy").clone();
    object(&mut other, OwnedKind::DaemonSet, "-envoy").value["metadata"]["uid"] = json!("another");
    open(&other);

    // After half of the writes, one object is deleted. The agreement still covers the other
    // objects.
    let half = writes.into_iter().take(3).collect();
    carry_out(&mut inventory, half);
    let role = inventory
        .objects
        .keys()
        .find(|key| key.0 == OwnedKind::Role);
    let role = role.unwrap().clone();
    inventory.objects.remove(&role);
    let OwnedPlan { writes, report } = planned(&inventory, &managed());
    assert!(report.without_fleet.is_empty(), "{report:?}");
    assert_eq!(writes.len(), 4, "{writes:?}");
    carry_out(&mut inventory, writes);
    assert_eq!(planned(&inventory, &managed()), OwnedPlan::default());
    let labels =
        &object(&mut inventory, OwnedKind::DaemonSet, "-envoy").value["metadata"]["labels"];
    assert_eq!(labels["theirs"], "x");
}

#[test]
fn foreign_objects_are_never_adopted() {
    let (_, consent) = compared(&released());
    let consent = consent.unwrap();
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "o"}]);
    let gateway = json!([{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "other",
        "uid": "o", "controller": true}]);
    for (pointer, value, words) in [
        ("ownerReferences", owner, "ReplicaSet other owns it"),
        ("ownerReferences", gateway, "Gateway other owns it"),
        (
            "annotations",
            json!({"projectsesame.io/controller": "example.com/other"}),
            "\"example.com/other\" manages it",
        ),
        (
            "labels",
            json!({"app.kubernetes.io/managed-by": "Helm"}),
            "\"Helm\" manages it",
        ),
        (
            "deletionTimestamp",
            json!("2024-01-01T00:00:00Z"),
            "it is being deleted",
        ),
    ] {
        let mut inventory = released();
        agree(&mut inventory, &consent);
        let launcher = object(&mut inventory, OwnedKind::DaemonSet, "-envoy");
        launcher.value["metadata"][pointer] = value;
        let changed = ExistingObject::new(OwnedKind::DaemonSet, "8", launcher.value.clone(), None);
        *launcher = changed;
        let (_, why) = open(&inventory);
        assert!(
            why.contains(words) && why.contains("edge-sesame-envoy"),
            "{words}: {why}"
        );
        let (_, none) = compared(&inventory);
        assert_eq!(none, None, "{words}");
    }
    let mut inventory = released();
    agree(&mut inventory, &consent);
    object(&mut inventory, OwnedKind::DaemonSet, "-envoy").value["spec"]["selector"] = json!({});
    let (_, why) = open(&inventory);
    assert!(why.contains("its selector"), "{why}");
}

#[test]
fn api_server_defaults_are_not_changes() {
    let mut inventory = released();
    for found in inventory.objects.values_mut() {
        found.value = defaults::with_defaults(found.value.clone());
        found.value["metadata"]["creationTimestamp"] = json!("2024-01-01T00:00:00Z");
        if let Some(spec) = found.value.get_mut("spec") {
            spec["template"]["metadata"]["creationTimestamp"] = Value::Null;
            spec["template"]["spec"]["containers"][0]["resources"] = json!({});
        }
    }
    let (actions, _) = compared(&inventory);
    let unchanged = actions.iter().all(
        |of| matches!(&of.action, AdoptionAction::Adopted { changes, .. } if changes.is_empty()),
    );
    assert!(unchanged, "{actions:?}");
}
