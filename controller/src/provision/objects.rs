//! Makes the Service and the EndpointSlices that a Gateway should have. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};
use sesame_proto::digest::sha256;

use super::Basis;
use sesame_gateway_api::api::{NamespacedName, Publishing, PublishingType};
use sesame_gateway_api::resolve::settings::GatewaySettings;
use sesame_gateway_api::world::Kind;
use sesame_published::names::{GATEWAY_LABEL, gateway_id};

/// Label of the specification for objects that are created for a Gateway.
const NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const MANAGED_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "sesame-controller";
/// Annotation with a digest of all fields that we write, so that a field that we no longer write is noticed.
pub(super) const DIGEST_ANNOTATION: &str = "projectsesame.io/digest";
/// Longest name of a Service, and value of a label.
const MAX_LABEL: usize = 63;
/// Largest number of ports of an EndpointSlice.
const MAX_PORTS: usize = 100;

/// Kind and name of an object.
pub(super) type Key = (Kind, NamespacedName);

/// Object that should exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceObject {
    pub(super) gateway: NamespacedName,
    pub(super) key: Key,
    pub(super) value: Value,
}

/// Returns the objects that a Gateway should have; the Service comes first.
pub(super) fn objects(basis: &Basis, settings: &GatewaySettings) -> Vec<ServiceObject> {
    let Some(spec) = specification(basis, settings) else {
        return Vec::new();
    };
    let name = service_name(basis);
    let ports: Vec<Value> = ports(basis, settings)
        .map(|(transport, port)| {
            let name = port_name(transport, port);
            json!({"name": name, "protocol": transport, "port": settings.opened(port)})
        })
        .collect();
    let service = json!({"apiVersion": "v1", "kind": "Service", "spec": spec});
    let mut service = object(basis, Kind::Service, &name, &[], service);
    decorate(&mut service.value, settings);
    let mut all = vec![stamped(service)];
    for (family, suffix) in [("IPv4", "ipv4"), ("IPv6", "ipv6")] {
        let of_family = |ip: &&IpAddr| ip.is_ipv4() == (family == "IPv4");
        let endpoints: Vec<Value> = basis
            .addresses
            .iter()
            .filter(of_family)
            .map(|ip| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}}))
            .collect();
        if endpoints.is_empty() {
            continue;
        }
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "addressType": family,
            "endpoints": endpoints,
            "ports": ports.iter().take(MAX_PORTS).collect::<Vec<_>>(),
        });
        let labels = [(SERVICE_LABEL, name.as_str()), (MANAGED_LABEL, MANAGER)];
        let slice_name = format!("{name}-{suffix}");
        let slice = object(basis, Kind::EndpointSlice, &slice_name, &labels, slice);
        all.push(stamped(slice));
    }
    all
}

/// Returns the ports that the Gateway may have.
fn ports(basis: &Basis, settings: &GatewaySettings) -> impl Iterator<Item = (&'static str, u16)> {
    let all = basis.ports.iter().copied();
    all.filter(|(_, port)| settings.allows(*port))
}

fn port_name(transport: &str, port: u16) -> String {
    format!("{}-{port}", transport.to_lowercase())
}

/// Returns `spec` of the Service; none if there is to be none.
fn specification(basis: &Basis, settings: &GatewaySettings) -> Option<Value> {
    let Publishing {
        type_,
        ip_family_policy,
        ip_families,
        load_balancer_class,
        load_balancer_source_ranges,
        annotations: _,
        labels: _,
    } = &settings.publishing;
    let all: Vec<Value> = ports(basis, settings)
        .map(|(transport, port)| {
            let name = port_name(transport, port);
            json!({"name": name, "protocol": transport, "port": port, "targetPort": settings.opened(port)})
        })
        .collect();
    // A Service with an address has ports, says the API.
    let type_ = match type_.as_ref().unwrap_or(&PublishingType::Headless) {
        PublishingType::None => return None,
        PublishingType::Headless => "ClusterIP",
        _ if all.is_empty() => return None,
        other => other.as_str(),
    };
    let mut spec = json!({"type": type_, "ports": all});
    let fields = [
        ("ipFamilyPolicy", json!(ip_family_policy)),
        ("ipFamilies", json!(ip_families)),
    ];
    let of_load_balancers = [
        ("loadBalancerClass", json!(load_balancer_class)),
        (
            "loadBalancerSourceRanges",
            json!(load_balancer_source_ranges),
        ),
    ];
    let of_load_balancers = of_load_balancers
        .into_iter()
        .filter(|_| type_ == PublishingType::LoadBalancer.as_str());
    for (field, value) in fields.into_iter().chain(of_load_balancers) {
        if !value.is_null() {
            spec[field] = value;
        }
    }
    if settings
        .publishing
        .type_
        .as_ref()
        .is_none_or(|it| *it == PublishingType::Headless)
    {
        spec["clusterIP"] = json!("None");
    }
    Some(spec)
}

/// Adds the labels and annotations that the configuration has for the Service, where neither the Gateway nor we have any of
/// that name.
fn decorate(service: &mut Value, settings: &GatewaySettings) {
    let Publishing {
        annotations,
        labels,
        ..
    } = &settings.publishing;
    for (field, all) in [("annotations", annotations), ("labels", labels)] {
        for (name, value) in all {
            if service["metadata"][field].get(name).is_none() {
                service["metadata"][field][name] = json!(value);
            }
        }
    }
}

/// Returns the object with a digest of all that we write.
fn stamped(mut object: ServiceObject) -> ServiceObject {
    let digest = sha256(object.value.to_string().as_bytes());
    object.value["metadata"]["annotations"][DIGEST_ANNOTATION] = json!(digest);
    object
}

fn object(
    basis: &Basis,
    kind: Kind,
    name: &str,
    labels: &[(&str, &str)],
    mut value: Value,
) -> ServiceObject {
    let Basis {
        gateway,
        uid,
        created: _,
        class: _,
        labels: wanted,
        annotations,
        ports: _,
        addresses: _,
    } = basis;
    // The Gateway's author does not decide about our own labels.
    let mut all: BTreeMap<&str, String> = BTreeMap::new();
    all.extend(wanted.iter().map(|(n, v)| (n.as_str(), v.clone())));
    all.extend(labels.iter().map(|(n, v)| (*n, (*v).to_owned())));
    all.insert(NAME_LABEL, name_label(gateway));
    all.insert(GATEWAY_LABEL, gateway_id(gateway));
    value["metadata"] = json!({
        "name": name,
        "namespace": gateway.namespace,
        "labels": all,
        "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "name": gateway.name,
            "uid": uid,
            "controller": true,
        }],
    });
    ServiceObject {
        gateway: gateway.clone(),
        key: (kind, NamespacedName::new(&gateway.namespace, name)),
        value,
    }
}

/// Returns `<gateway>-<class>`, as the specification recommends, with a digest where that is no name of a Service.
pub(super) fn service_name(basis: &Basis) -> String {
    let name = format!("{}-{}", basis.gateway.name, basis.class);
    let good = name.len() <= MAX_LABEL
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.contains('.');
    if good {
        name
    } else {
        format!("gateway-{}", gateway_id(&basis.gateway))
    }
}

/// Returns the UID of the Gateway that the object names as its owner; none if it names none.
///
/// This alone makes an object ours: labels are copied with the rest of an object, and anybody may use a name.
pub(super) fn owner(value: &Value) -> Option<&str> {
    let all = value.pointer("/metadata/ownerReferences")?.as_array()?;
    let ours = all.iter().find(|reference| {
        let group = reference["apiVersion"].as_str().unwrap_or_default();
        group.starts_with("gateway.networking.k8s.io/")
            && reference["kind"] == "Gateway"
            && reference["controller"] == true
    });
    ours?["uid"].as_str()
}

fn name_label(gateway: &NamespacedName) -> String {
    if gateway.name.len() <= MAX_LABEL {
        gateway.name.clone()
    } else {
        gateway_id(gateway)
    }
}
