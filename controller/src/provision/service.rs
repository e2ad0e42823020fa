//! Builds a Gateway's desired Service and EndpointSlices.

use serde_json::{Value, json};
use sesame_proto::schema::Transport;

use super::Basis;
use super::endpoints;
use super::fleet;
use super::kinds::OwnedKind;
use super::owned::{OwnedObject, local_object, service_name, stamped};
use super::service_fields::{fields, node_port};
use sesame_kinds::api::{Publishing, PublishingType};
use sesame_resolver::settings::GatewaySettings;

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const MANAGED_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "sesame-controller";
const MAX_PORTS: usize = 100;

/// If the Service selects Pods, Kubernetes manages the endpoints.
pub(super) fn objects(basis: &Basis, settings: &GatewaySettings) -> Vec<OwnedObject> {
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
    let service = json!({"spec": spec});
    let mut service = local_object(basis, OwnedKind::Service, &name, &[], service);
    decorate(&mut service.value, settings);
    let mut all = vec![stamped(service)];
    for slice in endpoints::slices(&basis.hosts) {
        let value = json!({
            "addressType": slice.family,
            "endpoints": slice.endpoints,
            "ports": ports.iter().take(MAX_PORTS).collect::<Vec<_>>(),
        });
        let labels = [(SERVICE_LABEL, name.as_str()), (MANAGED_LABEL, MANAGER)];
        let slice_name = format!("{name}-{}", slice.suffix);
        let object = local_object(basis, OwnedKind::EndpointSlice, &slice_name, &labels, value);
        all.push(stamped(object));
    }
    all
}

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
        PublishingType::UpstreamGateway => "ClusterIP",
        other => other.as_str(),
    };
    let mut spec = json!({"type": word, "ports": all});
    if settings.is_on_pod_network() {
        spec["selector"] = fleet::selector(basis);
    }
    for (field, value) in fields(publishing, type_) {
        spec[field] = value;
    }
    match (type_, basis.request.addresses.first()) {
        (PublishingType::Headless, _) => spec["clusterIP"] = json!("None"),
        // `loadBalancerIP` accepts only one address; the status reports the others.
        (PublishingType::LoadBalancer, Some(wanted)) => spec["loadBalancerIP"] = json!(wanted),
        _ => {}
    }
    Some(spec)
}

/// Returns true if the Service needs ports. The API requires them unless the Service is headless.
pub(super) fn needs_ports(settings: &GatewaySettings) -> bool {
    !matches!(
        settings.publishing_type(),
        PublishingType::Headless | PublishingType::None
    )
}

/// Adds the configured annotations and labels, unless the Gateway or the controller sets them.
fn decorate(service: &mut Value, settings: &GatewaySettings) {
    if *settings.publishing_type() == PublishingType::UpstreamGateway {
        // These entries apply to the second Gateway instead.
        return;
    }
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
