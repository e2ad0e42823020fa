use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_proto::schema::Transport;

use super::objects::objects;
use super::*;
use crate::provision::kinds::Purpose;
use crate::provision::owned::{ExistingObject, OwnedObject};
use crate::provision::plan::{Inventory, OwnedPlan, OwnedWrite, plan};
use crate::watch::Received;
use sesame_kinds::api::UpstreamSettings;

fn basis(ports: &[(Transport, u16)]) -> Basis {
    let gateway = json!({
        "metadata": {"name": "edge", "namespace": "web", "uid": "u"},
        "spec": {
            "gatewayClassName": "sesame",
            "infrastructure": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        },
    });
    let received: Received = serde_json::from_value(gateway).unwrap();
    let mut basis = Basis::of(&received).unwrap();
    basis.request.ports = ports.iter().copied().collect();
    basis.request.gives_addresses = true;
    basis
}

fn settings(class: Option<&str>) -> GatewaySettings {
    let mut settings = GatewaySettings::default();
    settings.publishing.type_ = Some(PublishingType::UpstreamGateway);
    settings.publishing.upstream = Some(UpstreamSettings {
        gateway_class_name: class.map(str::to_owned),
    });
    let scheme = ("example.com/scheme".to_owned(), "internal".to_owned());
    settings.publishing.annotations = [scheme].into();
    settings
}

fn made(basis: &Basis, class: &str) -> Vec<OwnedObject> {
    let made = objects(basis, &settings(Some(class)), &Inventory::default());
    made.unwrap().objects
}

fn planned(inventory: &Inventory, settings: GatewaySettings) -> OwnedPlan {
    let gateway = basis(&[]).gateway;
    let settings = BTreeMap::from([(gateway.clone(), settings)]);
    plan(inventory, [gateway].iter(), &settings)
}

fn inventory(basis: Basis, objects: Vec<OwnedObject>) -> Inventory {
    let objects = objects.into_iter().map(|object| {
        let (kind, _) = object.key;
        let existing = ExistingObject::new(kind, "7", object.value, None);
        (object.key, existing)
    });
    Inventory {
        gateways: [(basis.gateway.clone(), basis)].into(),
        objects: objects.collect(),
        ..Inventory::default()
    }
}

#[test]
fn upstream_gateway_has_every_port_with_its_route() {
    let mut basis = basis(&[(Transport::Tcp, 443), (Transport::Udp, 53)]);
    basis.request.addresses = vec!["192.0.2.9".to_owned()];
    let made = made(&basis, "cloud");
    let names: Vec<String> = made
        .iter()
        .map(|object| format!("{} {}", object.key.0, object.key.1))
        .collect();
    assert_eq!(
        names,
        [
            "Gateway web/edge-sesame-upstream",
            "TCPRoute web/edge-sesame-upstream-tcp-443",
            "UDPRoute web/edge-sesame-upstream-udp-53",
        ]
    );
    let spec = &made[0].value["spec"];
    assert_eq!(spec["gatewayClassName"], "cloud");
    assert_eq!(
        spec["addresses"],
        json!([{"type": "IPAddress", "value": "192.0.2.9"}])
    );
    assert_eq!(spec["infrastructure"]["labels"], json!({"team": "a"}));
    let annotations = json!({"example.com/scheme": "internal", "note": "b"});
    assert_eq!(spec["infrastructure"]["annotations"], annotations);
    let listeners = spec["listeners"].as_array().unwrap();
    let ports: Vec<(&Value, &Value)> = listeners
        .iter()
        .map(|listener| (&listener["protocol"], &listener["port"]))
        .collect();
    assert_eq!(
        ports,
        [(&json!("TCP"), &json!(443)), (&json!("UDP"), &json!(53))]
    );
    let route = &made[2].value["spec"];
    let parent = json!([{"name": "edge-sesame-upstream", "sectionName": "udp-53"}]);
    assert_eq!(route["parentRefs"], parent);
    let backend = json!([{"name": "edge-sesame", "port": 53}]);
    assert_eq!(route["rules"][0]["backendRefs"], backend);
    for object in &made {
        assert_eq!(object.value["metadata"]["ownerReferences"][0]["uid"], "u");
    }
}

#[test]
fn gateway_never_leads_to_itself_and_explains() {
    let ports = [(Transport::Tcp, 443)];
    let refused = |basis: &Basis, class: Option<&str>, inventory: &Inventory| {
        let why = objects(basis, &settings(class), inventory).unwrap_err();
        let mut known = self::inventory(basis.clone(), Vec::new());
        known.unwatched.clone_from(&inventory.unwatched);
        known.absent.clone_from(&inventory.absent);
        let OwnedPlan { writes, report } = planned(&known, settings(class));
        let writes_gateway = writes
            .iter()
            .any(|write| write.key().0 == OwnedKind::Gateway);
        assert!(!writes_gateway, "{writes:?}");
        assert_eq!(report.without_upstream[&basis.gateway], why);
        why
    };
    let none = Inventory::default();
    let plain = basis(&ports);
    let mut second = basis(&ports);
    second.leads_to = Some("first".to_owned());
    let many: Vec<_> = (1..=65).map(|port| (Transport::Tcp, port)).collect();
    let mut forbidden = Inventory::default();
    forbidden.unwatched.insert(OwnedKind::TcpRoute);
    let mut absent = Inventory::default();
    absent.unwatched.insert(OwnedKind::TcpRoute);
    absent.absent.insert(OwnedKind::TcpRoute);
    for (why, words) in [
        (refused(&plain, None, &none), "gatewayClassName is missing"),
        (
            refused(&plain, Some("sesame"), &none),
            "it would lead to itself",
        ),
        (
            refused(&second, Some("cloud"), &none),
            "it is in front of Gateway first",
        ),
        (
            refused(&basis(&many), Some("cloud"), &none),
            "at most 64 listeners",
        ),
        (
            refused(&plain, Some("cloud"), &forbidden),
            "not permitted to watch objects of kind TCPRoute",
        ),
        (
            refused(&plain, Some("cloud"), &absent),
            "does not serve TCPRoute v1; install newer definitions",
        ),
    ] {
        assert!(why.contains(words), "{words}: {why}");
    }
    // If one of the route kinds is missing, ports of the other protocol are still served.
    let both = basis(&[(Transport::Tcp, 443), (Transport::Udp, 53)]);
    let made = objects(&both, &settings(Some("cloud")), &absent).unwrap();
    assert_eq!(made.objects.len(), 2);
    assert!(
        made.left_out
            .unwrap()
            .starts_with("ports TCP 443 are omitted")
    );
}

#[test]
fn other_class_recreates_upstream_other_type_removes_it() {
    let edge = basis(&[(Transport::Tcp, 443)]);
    let there = || inventory(edge.clone(), made(&edge, "cloud"));
    let upstream_writes = |plan: &OwnedPlan| -> Vec<String> {
        let writes = plan.writes.iter();
        let writes = writes.filter(|write| write.key().0.purpose() == Purpose::Upstream);
        writes
            .map(|write| match write {
                OwnedWrite::Create(object) => format!("create {}", object.key.0),
                OwnedWrite::Replace { object, .. } => format!("replace {}", object.key.0),
                OwnedWrite::Delete { key, .. } => format!("delete {}", key.0),
            })
            .collect()
    };
    let same = planned(&there(), settings(Some("cloud")));
    assert!(
        upstream_writes(&same)
            .iter()
            .all(|write| !write.starts_with("delete"))
    );
    let other = planned(&there(), settings(Some("other")));
    assert!(
        upstream_writes(&other).contains(&"delete Gateway".to_owned()),
        "{other:?}"
    );
    let mut headless = settings(Some("cloud"));
    headless.publishing.type_ = Some(PublishingType::Headless);
    let gone = planned(&there(), headless);
    assert_eq!(
        upstream_writes(&gone),
        ["delete TCPRoute", "delete Gateway"]
    );
    let mut silent = there();
    silent
        .gateways
        .values_mut()
        .for_each(|basis| basis.request.ports.clear());
    let kept = planned(&silent, settings(Some("cloud")));
    assert_eq!(upstream_writes(&kept), [""; 0]);
}

fn addresses_for(status: &Value, requested: &[&str]) -> crate::statuses::ServiceAddresses {
    let mut edge = basis(&[(Transport::Tcp, 443)]);
    edge.request.addresses = requested.iter().map(ToString::to_string).collect();
    let mut all = made(&edge, "cloud");
    all[0].value["metadata"]["generation"] = json!(2);
    all[0].value["status"] = status.clone();
    let inventory = inventory(edge.clone(), all);
    addresses(&edge, &inventory, None)
}

fn condition(type_: &str, status: &str, seen: i64) -> Value {
    json!({"type": type_, "status": status, "reason": "Because", "message": "of this", "observedGeneration": seen})
}

#[test]
fn upstream_addresses_count_only_while_accepted() {
    let addresses = json!([{"type": "IPAddress", "value": "192.0.2.1"}, {"type": "Hostname", "value": "LB.example.com"},
        {"type": "NamedAddress", "value": "x"}, {"value": "bad"}]);
    let accepted = condition("Accepted", "True", 2);
    let found = addresses_for(
        &json!({"addresses": addresses, "conditions": [accepted, condition("Programmed", "True", 2)]}),
        &["192.0.2.9"],
    );
    assert_eq!(found.addresses, ["192.0.2.1", "lb.example.com"]);
    assert_eq!((found.awaited, found.notes), (None, Vec::new()));
    assert_eq!(
        found.unusable["192.0.2.9"],
        "Gateway web/edge-sesame-upstream has 192.0.2.1, lb.example.com"
    );

    let found = addresses_for(
        &json!({"addresses": addresses, "conditions": [condition("Accepted", "False", 2)]}),
        &[],
    );
    assert!(found.addresses.is_empty());
    let why = found.awaited.unwrap();
    assert_eq!(
        why,
        "Gateway web/edge-sesame-upstream of class \"cloud\" is rejected; Accepted is False (Because): of this"
    );
    let found = addresses_for(
        &json!({"addresses": addresses, "conditions": [condition("Accepted", "False", 1)]}),
        &[],
    );
    assert_eq!(found.addresses.len(), 2);
    let found = addresses_for(&json!({}), &[]);
    let why = found.awaited.unwrap();
    assert!(
        why.ends_with("has no address yet; its controller has not reported on it yet"),
        "{why}"
    );
}

#[test]
fn upstream_listener_conditions_are_noted_beside_addresses() {
    let listener = json!({"name": "tcp-443", "conditions": [condition("Accepted", "False", 2)]});
    let status = json!({
        "addresses": [{"value": "192.0.2.1"}],
        "conditions": [condition("Accepted", "True", 2), condition("Programmed", "False", 2)],
        "listeners": [listener],
    });
    let found = addresses_for(&status, &[]);
    assert_eq!(
        found.notes,
        [
            "Programmed is False (Because): of this",
            "listener \"tcp-443\": Accepted is False (Because): of this",
        ]
    );
    assert_eq!(found.addresses, ["192.0.2.1"]);
}

#[test]
fn merged_classes_never_form_a_circle() {
    let class = |name: &str| {
        let object = json!({"metadata": {"name": name, "uid": name}});
        let received: Received = serde_json::from_value(object).unwrap();
        let mut basis = Basis::for_class(&received, "sesame-system").unwrap();
        basis.request.ports = [(Transport::Tcp, 443)].into();
        basis
    };
    let classes = ["one", "two", "three"].map(class);
    let [one, two, three] = &classes;
    // Class `one` forwards to `two`, which forwards to `three`.
    let made = [made(one, "two"), made(two, "three")].concat();
    let mut known = inventory(basis(&[]), made);
    known.namespace = "sesame-system".to_owned();
    let named = classes.iter().map(|it| (it.gateway.clone(), it.clone()));
    known.classes = named.collect();
    for (basis, class, is_circle) in [
        (three, "one", true),
        (three, "two", true),
        (three, "cloud", false),
        (two, "one", true),
        (one, "three", false),
    ] {
        let outcome = objects(basis, &settings(Some(class)), &known);
        let why = outcome.err().unwrap_or_default();
        let is_refused = why.contains("leads back to this class");
        assert_eq!(is_refused, is_circle, "{} by {class}: {why}", basis.class);
    }
}
