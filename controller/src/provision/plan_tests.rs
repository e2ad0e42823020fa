use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Basis;
use super::objects::{Key, objects};
use super::plan::{Observed, Write, plan};
use crate::api::NamespacedName;
use crate::watch::Incoming;
use crate::world::Kind;

fn basis(change: impl FnOnce(&mut Value)) -> Basis {
    let mut gateway = json!({
        "metadata": {"name": "edge", "namespace": "web", "uid": "u"},
        "spec": {
            "gatewayClassName": "sesame",
            "listeners": [{"port": 443, "protocol": "HTTPS"}, {"port": 443, "protocol": "TLS"}, {"port": 53, "protocol": "UDP"}],
            "infrastructure": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        },
        "status": {"addresses": [{"value": "192.0.2.1"}, {"value": "127.0.0.1"}, {"value": "2001:db8::1"}, {"value": "a.test"}]},
    });
    change(&mut gateway);
    let incoming: Incoming = serde_json::from_value(gateway).unwrap();
    Basis::of(&incoming).unwrap()
}

/// The world after the writes were carried out.
fn settled(bases: &[Basis]) -> BTreeMap<Key, Observed> {
    let all = bases.iter().flat_map(objects);
    all.map(|object| {
        let mut value = object.value;
        // What the API adds.
        value["metadata"]["generation"] = json!(1);
        let version = "7".to_owned();
        (object.key, Observed { version, value })
    })
    .collect()
}

fn writes(bases: &[Basis], observed: &BTreeMap<Key, Observed>) -> Vec<Write> {
    let gateways: BTreeMap<NamespacedName, Basis> = bases
        .iter()
        .map(|basis| (basis.gateway.clone(), basis.clone()))
        .collect();
    plan(&gateways, gateways.keys(), observed)
}

#[test]
fn a_gateway_has_a_service_and_a_slice_of_each_family_that_carry_its_infrastructure() {
    let all = objects(&basis(|_| {}));
    let names: Vec<_> = all.iter().map(|o| (o.key.0, o.key.1.to_string())).collect();
    assert_eq!(
        names,
        [
            (Kind::Service, "web/edge-sesame".to_owned()),
            (Kind::EndpointSlice, "web/edge-sesame-ipv4".to_owned()),
            (Kind::EndpointSlice, "web/edge-sesame-ipv6".to_owned()),
        ]
    );
    for object in &all {
        let metadata = &object.value["metadata"];
        assert_eq!(metadata["labels"]["team"], "a");
        assert_eq!(metadata["annotations"]["note"], "b");
        assert_eq!(
            metadata["labels"]["gateway.networking.k8s.io/gateway-name"],
            "edge"
        );
    }
    let ports = json!([
        {"name": "tcp-443", "protocol": "TCP", "port": 443},
        {"name": "udp-53", "protocol": "UDP", "port": 53},
    ]);
    assert_eq!(all[0].value["spec"]["ports"], ports);
    let endpoints = &all[1].value["endpoints"];
    assert_eq!(endpoints.as_array().map(Vec::len), Some(1));
    assert_eq!(endpoints[0]["addresses"], json!(["192.0.2.1"]));
}

#[test]
fn no_label_of_the_author_takes_the_place_of_ours() {
    let mine = basis(|gateway| {
        let labels = &mut gateway["spec"]["infrastructure"]["labels"];
        labels["kubernetes.io/service-name"] = json!("other");
        labels["projectsesame.io/gateway"] = json!("other");
    });
    assert!(
        objects(&mine)[1..]
            .iter()
            .all(|slice| !slice.value.to_string().contains("other"))
    );
}

#[test]
fn a_name_that_no_service_can_have_is_a_digest() {
    for name in ["a.b", "1a", &"a".repeat(60)] {
        let basis = basis(|gateway| gateway["metadata"]["name"] = json!(name));
        let name = objects(&basis)[0].key.1.name.clone();
        assert!(name.starts_with("gateway-") && name.len() <= 63, "{name}");
    }
}

#[test]
fn what_is_there_is_not_written_and_what_differs_is() {
    let mine = [basis(|_| {})];
    assert!(writes(&mine, &settled(&mine)).is_empty());
    assert_eq!(writes(&mine, &BTreeMap::new()).len(), 3);

    // No ports: the API leaves the list out.
    let bare = [basis(|gateway| {
        gateway["spec"]["listeners"] = json!([]);
        gateway["status"] = json!({});
    })];
    let mut there = settled(&bare);
    for observed in there.values_mut() {
        observed.value["spec"]
            .as_object_mut()
            .unwrap()
            .remove("ports");
    }
    assert!(writes(&bare, &there).is_empty());

    // A label that is no longer wanted, and a field that somebody has changed.
    let fewer = [basis(|gateway| {
        gateway["spec"]["infrastructure"]["labels"] = json!({});
    })];
    assert_eq!(writes(&fewer, &settled(&mine)).len(), 3);
    let mut changed = settled(&mine);
    for observed in changed.values_mut() {
        observed.value["metadata"]["labels"]["team"] = json!("z");
    }
    let replaced = writes(&mine, &changed);
    assert_eq!(replaced.len(), 3);
    assert!(
        replaced
            .iter()
            .all(|write| matches!(write, Write::Replace { version, .. } if version == "7"))
    );
}

#[test]
fn what_belongs_to_no_gateway_of_ours_is_deleted_once_that_is_known() {
    let mine = [basis(|_| {})];
    let there = settled(&mine);
    let deletes = writes(&[], &there);
    assert_eq!(deletes.len(), 3);
    assert!(
        deletes
            .iter()
            .all(|write| matches!(write, Write::Delete { .. }))
    );
    // It is ours, but the watch of Gateways does not have it yet, or no longer.
    let ours = [mine[0].gateway.clone()];
    assert!(plan(&BTreeMap::new(), ours.iter(), &there).is_empty());
    // Its address of one family is gone.
    let fewer = [basis(|gateway| {
        gateway["status"]["addresses"] = json!([{"value": "192.0.2.1"}]);
    })];
    let deletes = writes(&fewer, &there);
    assert!(matches!(&deletes[..], [Write::Delete { key, .. }] if key.1.name.ends_with("-ipv6")));
}
