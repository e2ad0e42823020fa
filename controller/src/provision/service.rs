//! Makes the Service and the EndpointSlices that a Gateway should have. Pure.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::Basis;
use super::kinds::OwnedKind;
use super::owned::{OwnedObject, beside, service_name, stamped};
use sesame_gateway_api::api::{Publishing, PublishingType};
use sesame_gateway_api::resolve::settings::GatewaySettings;

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const MANAGED_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "sesame-controller";
/// Largest number of ports of an EndpointSlice.
const MAX_PORTS: usize = 100;

/// Returns the objects that a Gateway should have; the Service comes first.
pub(super) fn objects(basis: &Basis, settings: &GatewaySettings) -> Vec<OwnedObject> {
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
    let service = json!({"spec": spec});
    let mut service = beside(basis, OwnedKind::Service, &name, &[], service);
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
            "addressType": family,
            "endpoints": endpoints,
            "ports": ports.iter().take(MAX_PORTS).collect::<Vec<_>>(),
        });
        let labels = [(SERVICE_LABEL, name.as_str()), (MANAGED_LABEL, MANAGER)];
        let slice_name = format!("{name}-{suffix}");
        let slice = beside(basis, OwnedKind::EndpointSlice, &slice_name, &labels, slice);
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
