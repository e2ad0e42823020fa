use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use sesame_proto::schema::Transport;

use super::Basis;
use super::kinds::OwnedKind;
use super::owned::ExistingObject;
use super::plan::{Inventory, OwnedPlan, OwnedWrite, plan};
use crate::watch::Received;
use sesame_kinds::api::{FleetGateways, NamespacedName};
use sesame_resolver::ServiceRequest;
use sesame_resolver::settings::GatewaySettings;

fn published_as() -> NamespacedName {
    NamespacedName::new("sesame-system", "sesame")
}

fn inventory() -> Inventory {
    let object = |namespace: &str, uid: &str| {
        let object = json!({"metadata": {"name": "sesame", "namespace": namespace, "uid": uid},
            "spec": {"gatewayClassName": "other"}});
        serde_json::from_value::<Received>(object).unwrap()
    };
    let mut class = Basis::for_class(&object("", "c"), "sesame-system").unwrap();
    let request = ServiceRequest {
        ports: [(Transport::Tcp, 443)].into(),
        ..ServiceRequest::default()
    };
    class.update(&Arc::new([(published_as(), request)].into()), &None);
    let gateway = Basis::of(&object("sesame-system", "g")).unwrap();
    Inventory {
        namespace: "sesame-system".to_owned(),
        gateways: [(published_as(), gateway)].into(),
        classes: [(published_as(), class)].into(),
        ..Inventory::default()
    }
}

fn planned(inventory: &Inventory, gateways: &str, names: &[NamespacedName]) -> OwnedPlan {
    let mut settings = GatewaySettings::default();
    settings.fleet.gateways = Some(FleetGateways::from(gateways));
    let settings = BTreeMap::from([(published_as(), settings)]);
    plan(inventory, names.iter(), &settings)
}

#[test]
fn merged_gateways_have_service_in_controller_namespace() {
    let mut inventory = inventory();
    let names = [published_as()];
    let OwnedPlan { writes, report } = planned(&inventory, "Merged", &names);
    assert!(report.without_service.is_empty());
    let [OwnedWrite::Create(service)] = writes.as_slice() else {
        panic!("{writes:?}");
    };
    let (kind, name) = &service.key;
    assert_eq!(*kind, OwnedKind::Service);
    assert_eq!(name.to_string(), "sesame-system/gateways-sesame");
    let metadata = &service.value["metadata"];
    assert_eq!(metadata["ownerReferences"][0]["kind"], "GatewayClass");
    assert_eq!(metadata["ownerReferences"][0]["uid"], "c");
    let label = "gateway.networking.k8s.io/gateway-class-name";
    assert_eq!(metadata["labels"][label], "sesame");
    assert_eq!(service.value["spec"]["ports"][0]["port"], 443);

    let existing = ExistingObject::new(*kind, "7", service.value.clone(), None);
    inventory.objects.insert(service.key.clone(), existing);
    assert_eq!(planned(&inventory, "Merged", &names).writes, []);
    let OwnedPlan { writes, .. } = planned(&inventory, "Merged", &[]);
    assert!(matches!(writes.as_slice(), [OwnedWrite::Delete { .. }]));
}

#[test]
fn gateway_named_like_class_is_separate() {
    let OwnedPlan { writes, .. } = planned(&inventory(), "Isolated", &[published_as()]);
    let [OwnedWrite::Create(service)] = writes.as_slice() else {
        panic!("{writes:?}");
    };
    let owner = &service.value["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], "g");
    assert_eq!(service.key.1.name, "sesame-other");
}

#[test]
fn unwatched_namespace_prevents_writes_and_is_reported() {
    let mut inventory = inventory();
    inventory.unwatched_home = true;
    let OwnedPlan { writes, report } = planned(&inventory, "Merged", &[published_as()]);
    assert_eq!(writes, []);
    let why = &report.without_service[&published_as()];
    assert!(why.contains("spec.publishing.type None"), "{why}");
}
