use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Basis;
use super::kinds::{OwnedKey, OwnedKind};
use super::owned::ExistingObject;
use super::plan::{Inventory, OwnedPlan, OwnedWrite, plan};
use crate::watch::Received;
use sesame_kinds::api::{FleetImages, FleetManagement, FleetSettings, PublishingType};
use sesame_published::names::PUBLISHER;
use sesame_resolver::settings::GatewaySettings;

pub(super) fn basis(name: &str) -> Basis {
    let gateway = json!({
        "metadata": {"name": name, "namespace": "web", "uid": name},
        "spec": {"gatewayClassName": "sesame", "listeners": [{"port": 80, "protocol": "HTTP"}]},
    });
    let received: Received = serde_json::from_value(gateway).unwrap();
    Basis::of(&received).unwrap()
}

pub(super) fn settings(management: FleetManagement) -> GatewaySettings {
    let mut settings = GatewaySettings::default();
    settings.publishing.type_ = Some(PublishingType::None);
    settings.fleet = FleetSettings {
        management: Some(management),
        images: Some(FleetImages {
            agent: Some("agent:1".to_owned()),
            envoy: Some("envoy:1".to_owned()),
        }),
        ..FleetSettings::default()
    };
    settings
}

pub(super) fn managed() -> GatewaySettings {
    settings(FleetManagement::Managed)
}

fn inventory(bases: &[Basis]) -> Inventory {
    let gateways = bases
        .iter()
        .map(|basis| (basis.gateway.clone(), basis.clone()));
    Inventory {
        namespace: "sesame-system".to_owned(),
        gateways: gateways.collect(),
        ..Inventory::default()
    }
}

pub(super) fn planned(inventory: &Inventory, settings: &GatewaySettings) -> OwnedPlan {
    let names = inventory.gateways.keys();
    let settings = names.map(|name| (name.clone(), settings.clone())).collect();
    plan(inventory, inventory.gateways.keys(), &settings)
}

pub(super) fn carry_out(inventory: &mut Inventory, writes: Vec<OwnedWrite>) {
    for write in writes {
        let key = write.key().clone();
        match write {
            OwnedWrite::Create(object) | OwnedWrite::Replace { object, .. } => {
                let managed = json!([{"manager": PUBLISHER}]);
                let existing = ExistingObject::new(key.0, "7", object.value, Some(&managed));
                inventory.objects.insert(key, existing);
            }
            OwnedWrite::Delete { .. } => {
                inventory.objects.remove(&key);
            }
        }
    }
}

pub(super) fn settled(bases: &[Basis]) -> Inventory {
    let mut inventory = inventory(bases);
    let OwnedPlan { writes, report } = planned(&inventory, &managed());
    assert!(report.without_fleet.is_empty(), "{report:?}");
    carry_out(&mut inventory, writes);
    assert_eq!(planned(&inventory, &managed()), OwnedPlan::default());
    inventory
}

fn names(keys: impl Iterator<Item = OwnedKey>) -> BTreeSet<String> {
    keys.map(|(kind, name)| format!("{kind} {name}")).collect()
}

fn only_tells(writes: &[OwnedWrite]) -> bool {
    matches!(writes, [OwnedWrite::Create(object)] if object.key.0 == OwnedKind::ConfigMap)
}

#[test]
fn managed_gateway_gets_fleet_and_separate_roles() {
    let inventory = settled(&[basis("edge")]);
    let id = "sesame-system/sesame-managed.";
    let found = names(inventory.objects.keys().cloned());
    let found: Vec<&str> = found
        .iter()
        .map(|name| name.split(id).next().unwrap())
        .collect();
    let expected = [
        "DaemonSet web/edge-sesame-agent",
        "DaemonSet web/edge-sesame-envoy",
        "Role ",
        "RoleBinding ",
        "RoleBinding ",
        "ServiceAccount web/edge-sesame-agent",
    ];
    assert_eq!(found, expected);
    for ((kind, name), found) in &inventory.objects {
        assert_eq!(found.owner.as_deref(), Some("edge"), "{kind} {name}");
    }
    for management in [FleetManagement::Unmanaged, FleetManagement::External] {
        let nothing = self::inventory(&[basis("edge")]);
        assert_eq!(
            planned(&nothing, &settings(management)),
            OwnedPlan::default()
        );
    }
}

#[test]
fn changed_objects_are_repaired_or_recreated_if_immutable() {
    let inventory = settled(&[basis("edge")]);
    for key in inventory.objects.keys() {
        let with = |change: &dyn Fn(&mut Value)| {
            let mut changed = self::inventory(&[basis("edge")]);
            changed.objects.clone_from(&inventory.objects);
            change(&mut changed.objects.get_mut(key).unwrap().value);
            planned(&changed, &managed()).writes
        };
        let writes =
            with(&|value| value["metadata"]["labels"]["projectsesame.io/gateway"] = json!("other"));
        assert!(
            matches!(&writes[..], [OwnedWrite::Replace { .. }]),
            "{key:?} {writes:?}"
        );
        let mut less = self::inventory(&[basis("edge")]);
        less.objects.clone_from(&inventory.objects);
        less.objects.remove(key);
        let writes = planned(&less, &managed()).writes;
        assert!(
            matches!(&writes[..], [OwnedWrite::Create(_)]),
            "{key:?} {writes:?}"
        );
        let writes = with(&|value| match key.0 {
            OwnedKind::DaemonSet => value["spec"]["selector"] = json!({"matchLabels": {"a": "b"}}),
            OwnedKind::RoleBinding => value["roleRef"]["name"] = json!("other"),
            _ => value["metadata"]["labels"] = json!({}),
        });
        let immutable = matches!(key.0, OwnedKind::DaemonSet | OwnedKind::RoleBinding);
        let deleted = matches!(&writes[..], [OwnedWrite::Delete { .. }]);
        assert_eq!(deleted, immutable, "{key:?} {writes:?}");
    }
}

#[test]
fn unmanaged_fleet_is_released_and_outlives_its_gateway() {
    let mut inventory = settled(&[basis("edge"), basis("other")]);
    let mut all: BTreeMap<_, _> = [
        ("edge", FleetManagement::External),
        ("other", FleetManagement::Managed),
    ]
    .map(|(name, management)| (basis(name).gateway, settings(management)))
    .into();
    let before = inventory.objects.clone();
    let names: Vec<_> = all.keys().cloned().collect();
    let OwnedPlan { writes, .. } = plan(&inventory, names.iter(), &all);
    assert_eq!(writes.len(), 6, "{writes:?}");
    for write in &writes {
        let OwnedWrite::Replace { object, version } = write else {
            panic!("{write:?}");
        };
        let found = &before[&object.key].value;
        assert_eq!(version, "7");
        assert_eq!(object.value["spec"], found["spec"]);
        assert_eq!(object.value["rules"], found["rules"]);
    }
    carry_out(&mut inventory, writes);
    let OwnedPlan { writes, report } = plan(&inventory, names.iter(), &all);
    assert!(writes.is_empty(), "{writes:?}");
    let why = &report.released[&basis("edge").gateway];
    assert!(
        why.contains(
            "DaemonSet web/edge-sesame-agent, DaemonSet web/edge-sesame-envoy keep running"
        ),
        "{why}"
    );
    assert_eq!(report.released.len(), 1);

    // The objects have no owner, so adoption needs an agreement.
    all.insert(basis("edge").gateway, managed());
    let OwnedPlan { writes, report } = plan(&inventory, names.iter(), &all);
    assert!(only_tells(&writes), "{writes:?}");
    let why = &report.without_fleet[&basis("edge").gateway];
    assert!(
        why.contains(
            "ServiceAccount web/edge-sesame-agent exists and does not belong to this \
            Gateway"
        ),
        "{why}"
    );

    // Only the released fleet is kept.
    let gone: Vec<String> = inventory
        .gateways
        .values()
        .map(|basis| basis.uid.clone())
        .collect();
    inventory.gateways.clear();
    inventory.gone.extend(gone);
    let OwnedPlan { writes, .. } = plan(&inventory, [].iter(), &BTreeMap::new());
    let deleted = self::names(writes.iter().map(|write| write.key().clone()));
    assert_eq!(deleted.len(), 6, "{deleted:?}");
    assert!(
        deleted.contains("DaemonSet web/other-sesame-agent"),
        "{deleted:?}"
    );
}

#[test]
fn roles_of_vanished_gateway_are_removed_except_copies() {
    let mut inventory = settled(&[basis("edge")]);
    let (key, found) = inventory
        .objects
        .iter()
        .find(|(key, _)| key.0 == OwnedKind::Role)
        .unwrap();
    let mut copy = (key.clone(), found.value.clone());
    copy.0.1.name = "copy".to_owned();
    let by_another = json!([{"manager": "kubectl"}]);
    let existing = ExistingObject::new(OwnedKind::Role, "7", copy.1, Some(&by_another));
    inventory.objects.insert(copy.0, existing);
    inventory.gateways.clear();
    let OwnedPlan { writes, .. } = plan(&inventory, [].iter(), &BTreeMap::new());
    assert_eq!(writes.len(), 3, "{writes:?}");
    for write in &writes {
        assert!(
            matches!(write, OwnedWrite::Delete { key, .. } if key.0.is_remote() && key.1.name != "copy")
        );
    }
}

#[test]
fn taken_name_and_missing_image_are_only_reported() {
    let mut inventory = settled(&[basis("edge")]);
    let (account, _) = inventory
        .objects
        .iter()
        .find(|(key, _)| key.0 == OwnedKind::ServiceAccount)
        .unwrap();
    let account = account.clone();
    let foreign = json!({"metadata": {"name": "edge-sesame-agent", "namespace": "web"}});
    let existing = ExistingObject::new(OwnedKind::ServiceAccount, "7", foreign, None);
    inventory.objects.clear();
    inventory.objects.insert(account, existing);
    let OwnedPlan { writes, report } = planned(&inventory, &managed());
    assert!(only_tells(&writes), "{writes:?}");
    let why = &report.without_fleet[&basis("edge").gateway];
    assert!(
        why.contains("ServiceAccount web/edge-sesame-agent exists"),
        "{why}"
    );

    let inventory = settled(&[basis("edge")]);
    let mut imageless = managed();
    imageless.fleet.images.as_mut().unwrap().envoy = None;
    let OwnedPlan { writes, report } = planned(&inventory, &imageless);
    assert!(writes.is_empty(), "{writes:?}");
    let why = &report.without_fleet[&basis("edge").gateway];
    assert!(why.contains("spec.fleet.images.envoy is missing"), "{why}");

    let mut forbidden = settled(&[basis("edge")]);
    forbidden.unwatched.insert(OwnedKind::DaemonSet);
    let OwnedPlan { writes, report } = planned(&forbidden, &managed());
    assert!(writes.is_empty(), "{writes:?}");
    let why = &report.without_fleet[&basis("edge").gateway];
    assert!(why.contains("controller/deploy/fleets.yaml"), "{why}");
}

#[test]
fn another_controller_touches_nothing_of_a_fleet() {
    let mut inventory = inventory(&[basis("edge")]);
    inventory.controller = "example.com/one".to_owned();
    let OwnedPlan { writes, .. } = planned(&inventory, &managed());
    carry_out(&mut inventory, writes);
    assert_eq!(planned(&inventory, &managed()), OwnedPlan::default());
    inventory.controller = "example.com/other".to_owned();
    let none = plan(&inventory, [].iter(), &BTreeMap::new());
    assert_eq!(none, OwnedPlan::default());
    inventory.controller = "example.com/one".to_owned();
    let OwnedPlan { writes, .. } = plan(&inventory, [].iter(), &BTreeMap::new());
    assert_eq!(writes.len(), 6, "{writes:?}");
}
