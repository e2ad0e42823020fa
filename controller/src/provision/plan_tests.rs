use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use sesame_proto::schema::Transport;

use super::Basis;
use super::kinds::{OwnedKey, OwnedKind};
use super::owned::{ExistingObject, OwnedObject, with_controller};
use super::plan::{Inventory, OwnedPlan, OwnedWrite, plan};
use super::service::objects;
use crate::statuses::{GatewayProblems, HostEndpoint};
use crate::watch::Received;
use sesame_kinds::api::{
    PinnedNodePort, Publishing, PublishingType, ServiceTraffic, SessionAffinity,
};
use sesame_resolver::ServiceRequest;
use sesame_resolver::settings::GatewaySettings;

fn basis(change: impl FnOnce(&mut Value)) -> Basis {
    let mut gateway = json!({
        "metadata": {"name": "edge", "namespace": "web", "uid": "u"},
        "spec": {
            "gatewayClassName": "sesame",
            "infrastructure": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        },
    });
    change(&mut gateway);
    let received: Received = serde_json::from_value(gateway).unwrap();
    let mut basis = Basis::of(&received).unwrap();
    let gateway = basis.gateway.clone();
    let request = ServiceRequest {
        ports: [(Transport::Tcp, 443), (Transport::Udp, 53)].into(),
        ..ServiceRequest::default()
    };
    let hosts = hosts(&["192.0.2.1", "127.0.0.1", "2001:db8::1"]);
    let requests = BTreeMap::from([(gateway.clone(), request)]);
    basis.update(&Arc::new(requests), &Some([(gateway, hosts)].into()));
    basis
}

fn hosts(addresses: &[&str]) -> BTreeMap<IpAddr, HostEndpoint> {
    let ips = addresses.iter().map(|text| text.parse().unwrap());
    ips.map(|ip| (ip, HostEndpoint::default())).collect()
}

fn plain(basis: &Basis) -> Vec<OwnedObject> {
    let objects = objects(basis, &GatewaySettings::default()).into_iter();
    objects.map(|object| with_controller(object, "")).collect()
}

fn settled(bases: &[Basis]) -> BTreeMap<OwnedKey, ExistingObject> {
    let all = bases.iter().flat_map(plain);
    all.map(|object| {
        let mut value = object.value;
        // The API server adds this field.
        value["metadata"]["generation"] = json!(1);
        // The API server omits these fields in lists.
        value["apiVersion"].take();
        value["kind"].take();
        let existing = ExistingObject::new(object.key.0, "7", value, None);
        (object.key, existing)
    })
    .collect()
}

fn known(bases: &[Basis], objects: &BTreeMap<OwnedKey, ExistingObject>) -> Inventory {
    let gateways = bases
        .iter()
        .map(|basis| (basis.gateway.clone(), basis.clone()));
    Inventory {
        gateways: gateways.collect(),
        objects: objects.clone(),
        ..Inventory::default()
    }
}

fn planned(
    bases: &[Basis],
    observed: &BTreeMap<OwnedKey, ExistingObject>,
) -> (Vec<OwnedWrite>, GatewayProblems) {
    let known = known(bases, observed);
    planned_with(&known, &GatewaySettings::default())
}

fn planned_with(
    known: &Inventory,
    settings: &GatewaySettings,
) -> (Vec<OwnedWrite>, GatewayProblems) {
    let names = known.gateways.keys();
    let settings = names.map(|name| (name.clone(), settings.clone())).collect();
    let OwnedPlan { writes, report } = plan(known, known.gateways.keys(), &settings);
    assert!(report.without_fleet.is_empty() && report.released.is_empty());
    (writes, report.without_service)
}

fn writes(bases: &[Basis], observed: &BTreeMap<OwnedKey, ExistingObject>) -> Vec<OwnedWrite> {
    planned(bases, observed).0
}

#[test]
fn gateway_has_service_and_slices_with_its_infrastructure() {
    let all = plain(&basis(|_| {}));
    let names: Vec<_> = all.iter().map(|o| (o.key.0, o.key.1.to_string())).collect();
    assert_eq!(
        names,
        [
            (OwnedKind::Service, "web/edge-sesame".to_owned()),
            (OwnedKind::EndpointSlice, "web/edge-sesame-ipv4".to_owned()),
            (OwnedKind::EndpointSlice, "web/edge-sesame-ipv6".to_owned()),
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
        {"name": "tcp-443", "protocol": "TCP", "port": 443, "targetPort": 443},
        {"name": "udp-53", "protocol": "UDP", "port": 53, "targetPort": 53},
    ]);
    assert_eq!(all[0].value["spec"]["ports"], ports);
    let endpoints = &all[1].value["endpoints"];
    assert_eq!(endpoints.as_array().map(Vec::len), Some(1));
    assert_eq!(endpoints[0]["addresses"], json!(["192.0.2.1"]));
}

#[test]
fn author_labels_do_not_replace_ours() {
    let mine = basis(|gateway| {
        let labels = &mut gateway["spec"]["infrastructure"]["labels"];
        labels["kubernetes.io/service-name"] = json!("other");
        labels["projectsesame.io/gateway"] = json!("other");
    });
    assert!(
        plain(&mine)[1..]
            .iter()
            .all(|slice| !slice.value.to_string().contains("other"))
    );
}

#[test]
fn invalid_service_name_becomes_digest() {
    for name in ["a.b", "1a", &"a".repeat(60)] {
        let basis = basis(|gateway| gateway["metadata"]["name"] = json!(name));
        let name = plain(&basis)[0].key.1.name.clone();
        assert!(name.starts_with("gateway-") && name.len() <= 63, "{name}");
    }
}

#[test]
fn only_objects_that_differ_are_written() {
    let mine = [basis(|_| {})];
    assert!(writes(&mine, &settled(&mine)).is_empty());
    assert_eq!(writes(&mine, &BTreeMap::new()).len(), 3);

    // The API omits an empty list of ports.
    let mut bare = [basis(|_| {})];
    bare[0].request.ports.clear();
    bare[0].hosts.clear();
    let mut there = settled(&bare);
    for observed in there.values_mut() {
        observed.value["spec"]
            .as_object_mut()
            .unwrap()
            .remove("ports");
    }
    assert!(writes(&bare, &there).is_empty());

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
            .all(|write| matches!(write, OwnedWrite::Replace { version, .. } if version == "7"))
    );
}

#[test]
fn objects_without_own_gateway_are_deleted_once_known() {
    let mine = [basis(|_| {})];
    let there = settled(&mine);
    let deletes = |known: &Inventory| {
        let OwnedPlan { writes, .. } = plan(known, [].iter(), &BTreeMap::new());
        let deletes = |write: &OwnedWrite| matches!(write, OwnedWrite::Delete { .. });
        assert!(writes.iter().all(deletes));
        writes.len()
    };
    // The Gateway's class has changed.
    assert_eq!(deletes(&known(&mine, &there)), 3);
    // If the controller never saw a deleted Gateway, the owner of these objects is unknown.
    let mut gone = known(&[], &there);
    assert_eq!(deletes(&gone), 0);
    gone.gone.insert("u".to_owned());
    assert_eq!(deletes(&gone), 3);
    // The Gateway is ours, but the watch has not delivered it yet, or has already removed it.
    let ours = [mine[0].gateway.clone()];
    let planned = plan(&gone, ours.iter(), &BTreeMap::new());
    assert_eq!(planned, OwnedPlan::default());
    let mut fewer = [basis(|_| {})];
    fewer[0].hosts = hosts(&["192.0.2.1"]);
    let deletes = writes(&fewer, &there);
    let [OwnedWrite::Delete { key, .. }] = &deletes[..] else {
        panic!("{deletes:?}");
    };
    assert!(key.1.name.ends_with("-ipv6"));
}

#[test]
fn labelled_objects_of_other_owners_are_untouched() {
    let mine = [basis(|_| {})];
    for owner in [
        json!([]),
        json!([{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "edge", "uid": "other", "controller": true}]),
        json!([{"apiVersion": "v1", "kind": "Gateway", "name": "edge", "uid": "u", "controller": true}]),
        json!([{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "edge", "uid": "u"}]),
    ] {
        let mut there = settled(&mine);
        for observed in there.values_mut() {
            observed.value["metadata"]["ownerReferences"] = owner.clone();
            observed.value["spec"]["clusterIP"] = json!("other");
            let value = observed.value.clone();
            *observed = ExistingObject::new(OwnedKind::Service, "7", value, None);
        }
        let (writes, without_service) = planned(&mine, &there);
        assert!(writes.is_empty(), "{owner}: {writes:?}");
        assert!(without_service[&mine[0].gateway].contains("web/edge-sesame exists"));
        let planned = plan(&known(&mine, &there), [].iter(), &BTreeMap::new());
        assert_eq!(planned, OwnedPlan::default(), "{owner}");
    }
}

#[test]
fn first_gateway_keeps_contested_service_name() {
    let named = |name: &str, class: &str, created: &str| {
        basis(|gateway| {
            gateway["metadata"]["name"] = json!(name);
            gateway["metadata"]["uid"] = json!(name);
            gateway["metadata"]["creationTimestamp"] = json!(created);
            gateway["spec"]["gatewayClassName"] = json!(class);
        })
    };
    let young = named("web", "int-sesame", "2026-02-01T00:00:00Z");
    let old = named("web-int", "sesame", "2026-01-01T00:00:00Z");
    let both = [young.clone(), old.clone()];
    let (creates, without_service) = planned(&both, &BTreeMap::new());
    assert_eq!(creates.len(), 3);
    assert!(
        creates
            .iter()
            .all(|write| write.gateway() == Some(&old.gateway))
    );
    let why = "Service web/web-int-sesame belongs to Gateway web/web-int";
    assert!(without_service[&young.gateway].ends_with(why));
    assert_eq!(without_service.len(), 1);
    // Once one Gateway owns the Service, nothing more is written for the other Gateway.
    for holder in [&young, &old] {
        let there = settled(std::slice::from_ref(holder));
        let (writes, without_service) = planned(&both, &there);
        assert!(writes.is_empty(), "{writes:?}");
        assert!(!without_service.contains_key(&holder.gateway) && without_service.len() == 1);
    }
}

fn published(type_: PublishingType) -> GatewaySettings {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut settings = GatewaySettings::default();
    settings.publishing = Publishing {
        type_: Some(type_),
        load_balancer_class: Some("example.com/lb".to_owned()),
        annotations: [pair("note", "theirs"), pair("scheme", "internal")].into(),
        ..Publishing::default()
    };
    settings
}

#[test]
fn service_follows_configuration_and_gateway_annotations_win() {
    let all = objects(&basis(|_| {}), &published(PublishingType::LoadBalancer));
    let service = &all[0].value;
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    assert_eq!(service["spec"]["loadBalancerClass"], "example.com/lb");
    assert_eq!(service["spec"]["clusterIP"], Value::Null);
    assert_eq!(service["metadata"]["annotations"]["note"], "b");
    assert_eq!(service["metadata"]["annotations"]["scheme"], "internal");
    assert_eq!(
        all[1].value["metadata"]["annotations"]["scheme"],
        Value::Null
    );
    let inside = objects(&basis(|_| {}), &published(PublishingType::ClusterIp));
    assert_eq!(inside[0].value["spec"]["loadBalancerClass"], Value::Null);
    assert!(objects(&basis(|_| {}), &published(PublishingType::None)).is_empty());
}

#[test]
fn service_gaining_address_is_recreated_and_unwanted_removed() {
    let bases = [basis(|_| {})];
    let known = known(&bases, &settled(&bases));
    let service = |writes: &[OwnedWrite]| {
        let mut service_writes = writes
            .iter()
            .filter(|write| write.key().0 == OwnedKind::Service);
        matches!(service_writes.next(), Some(OwnedWrite::Delete { .. }))
    };
    let (writes, _) = planned_with(&known, &published(PublishingType::ClusterIp));
    assert!(service(&writes), "{writes:?}");
    let (writes, _) = planned_with(&known, &published(PublishingType::None));
    assert_eq!(writes.len(), 3, "{writes:?}");
    assert!(service(&writes));
    let planned = plan(&known, known.gateways.keys(), &BTreeMap::new());
    assert_eq!(planned, OwnedPlan::default());
}

#[test]
fn service_has_only_fields_of_its_type() {
    let mut basis = basis(|_| {});
    basis.request.addresses = vec!["192.0.2.50".to_owned(), "192.0.2.51".to_owned()];
    let specification = |type_| {
        let mut settings = GatewaySettings::default();
        settings.publishing = Publishing {
            type_: Some(type_),
            allocate_load_balancer_node_ports: Some(false),
            external_traffic_policy: Some(ServiceTraffic::Local),
            internal_traffic_policy: Some(ServiceTraffic::Local),
            session_affinity: Some(SessionAffinity::ClientIp),
            node_ports: Some(vec![PinnedNodePort {
                port: 443,
                node_port: 30443,
            }]),
            ..Publishing::default()
        };
        objects(&basis, &settings)[0].value["spec"].clone()
    };
    let fields = |spec: &Value| {
        let fields = [
            "internalTrafficPolicy",
            "sessionAffinity",
            "externalTrafficPolicy",
            "allocateLoadBalancerNodePorts",
            "loadBalancerIP",
        ];
        fields.map(|field| spec[field].clone())
    };
    let local = json!("Local");
    let affinity = json!("ClientIP");
    let none = Value::Null;
    let balanced = specification(PublishingType::LoadBalancer);
    let (no, wanted) = (json!(false), json!("192.0.2.50"));
    let expected = [&local, &affinity, &local, &no, &wanted];
    assert_eq!(fields(&balanced).each_ref(), expected);
    let on_nodes = specification(PublishingType::NodePort);
    let expected = [&local, &affinity, &local, &none, &none];
    assert_eq!(fields(&on_nodes).each_ref(), expected);
    let inside = specification(PublishingType::ClusterIp);
    let expected = [&local, &affinity, &none, &none, &none];
    assert_eq!(fields(&inside).each_ref(), expected);
    let headless = specification(PublishingType::Headless);
    assert_eq!(fields(&headless).each_ref(), [&none; 5]);
    for (spec, pinned) in [(&balanced, 30443), (&on_nodes, 30443)] {
        assert_eq!(spec["ports"][0]["nodePort"], pinned);
        assert_eq!(spec["ports"][1]["nodePort"], none);
    }
    assert_eq!(inside["ports"][0]["nodePort"], none);
}

#[test]
fn service_with_address_outlives_last_listener() {
    let mut bases = [basis(|_| {})];
    let settings = published(PublishingType::LoadBalancer);
    let all = objects(&bases[0], &settings).into_iter();
    let there = all.map(|object| {
        let existing = ExistingObject::new(object.key.0, "7", object.value, None);
        (object.key, existing)
    });
    let there = there.collect();
    bases[0].request.ports.clear();
    let (writes, _) = planned_with(&known(&bases, &there), &settings);
    assert!(writes.is_empty(), "{writes:?}");
    let none = published(PublishingType::None);
    let (writes, _) = planned_with(&known(&bases, &there), &none);
    assert_eq!(writes.len(), 3, "{writes:?}");
}
