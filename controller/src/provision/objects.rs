//! Makes the Service and the EndpointSlices that a Gateway should have. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_proto::digest::sha256;
use sesame_proto::schema::Transport;

use super::Basis;
use super::endpoints;
use super::kept::note_written;
use super::service_fields::{fields, node_port};
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
    let ports: Vec<Value> = ports(basis)
        .map(|(transport, port)| {
            let name = port_name(transport, port);
            json!({"name": name, "protocol": transport, "port": settings.opened(port)})
        })
        .collect();
    let service = json!({"apiVersion": "v1", "kind": "Service", "spec": spec});
    let mut service = object(basis, Kind::Service, &name, &[], service);
    decorate(&mut service.value, settings);
    let mut all = vec![stamped(service)];
    for slice in endpoints::slices(&basis.hosts) {
        let value = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "addressType": slice.family,
            "endpoints": slice.endpoints,
            "ports": ports.iter().take(MAX_PORTS).collect::<Vec<_>>(),
        });
        let labels = [(SERVICE_LABEL, name.as_str()), (MANAGED_LABEL, MANAGER)];
        let slice_name = format!("{name}-{}", slice.suffix);
        let object = object(basis, Kind::EndpointSlice, &slice_name, &labels, value);
        all.push(stamped(object));
    }
    all
}

/// Returns the ports of the Gateway.
fn ports(basis: &Basis) -> impl Iterator<Item = (&'static str, u16)> {
    let all = basis.request.ports.iter();
    all.map(|(transport, port)| match transport {
        Transport::Tcp => ("TCP", *port),
        Transport::Udp => ("UDP", *port),
    })
}

fn port_name(transport: &str, port: u16) -> String {
    format!("{}-{port}", transport.to_lowercase())
}

/// Returns `spec` of the Service; none if there is to be none.
fn specification(basis: &Basis, settings: &GatewaySettings) -> Option<Value> {
    let publishing = &settings.publishing;
    let type_ = settings.publishing_type();
    let all: Vec<Value> = ports(basis)
        .map(|(transport, port)| {
            let name = port_name(transport, port);
            let mut entry = json!({"name": name, "protocol": transport, "port": port, "targetPort": settings.opened(port)});
            if let Some(pinned) = node_port(publishing, type_, port) {
                entry["nodePort"] = json!(pinned);
            }
            entry
        })
        .collect();
    let word = match type_ {
        PublishingType::None => return None,
        PublishingType::Headless => "ClusterIP",
        _ if needs_ports(settings) && all.is_empty() => return None,
        other => other.as_str(),
    };
    let mut spec = json!({"type": word, "ports": all});
    for (field, value) in fields(publishing, type_) {
        spec[field] = value;
    }
    match (type_, basis.request.addresses.first()) {
        (PublishingType::Headless, _) => spec["clusterIP"] = json!("None"),
        // There is room for one; the status tells of others.
        (PublishingType::LoadBalancer, Some(wanted)) => spec["loadBalancerIP"] = json!(wanted),
        _ => {}
    }
    Some(spec)
}

/// Returns true if the Service has an address, and so has ports, says the API.
pub(super) fn needs_ports(settings: &GatewaySettings) -> bool {
    !matches!(
        settings.publishing_type(),
        PublishingType::Headless | PublishingType::None
    )
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
    note_written(&mut object.value);
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
        request: _,
        hosts: _,
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
