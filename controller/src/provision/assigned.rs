//! Reads the addresses that Gateways get from their Services or second Gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use sesame_proto::dns_name::is_dns_subdomain;

use super::Basis;
use super::kinds::OwnedKind;
use super::owned::service_name;
use super::plan::Inventory;
use super::upstream;
use crate::statuses::{ProvisionReport, ServiceAddresses};
use sesame_kinds::api::{NamespacedName, PublishingType};
use sesame_resolver::ServiceRequest;
use sesame_resolver::settings::GatewaySettings;

/// Maximum number of entries in `status.addresses`.
pub(super) const MAX_ADDRESSES: usize = 16;
/// Maximum number of load balancer ingresses, and of ports per ingress.
pub(super) const MAX_READ: usize = 100;
pub(super) const MAX_NOTES: usize = 8;
/// Maximum length of text from other controllers, in characters.
const MAX_TEXT: usize = 200;

pub(super) fn assigned(
    inventory: &Inventory,
    settings: &BTreeMap<NamespacedName, GatewaySettings>,
    report: &ProvisionReport,
) -> BTreeMap<NamespacedName, ServiceAddresses> {
    let known = settings.iter();
    let known =
        known.filter_map(|(name, settings)| Some((inventory.basis(name, settings)?, settings)));
    let by_service = known.filter(|(basis, _)| basis.request.gives_addresses);
    let addresses = by_service.map(|(basis, settings)| {
        if *settings.publishing_type() == PublishingType::UpstreamGateway {
            let problem = report.without_upstream.get(&basis.gateway);
            return (
                basis.gateway.clone(),
                upstream::addresses(basis, inventory, problem),
            );
        }
        let name = NamespacedName::new(&basis.gateway.namespace, &service_name(basis));
        let service = inventory.objects.get(&(OwnedKind::Service, name.clone()));
        let service = service.filter(|found| found.is_owned_by(basis));
        let service = service.map(|found| &found.value);
        let addresses = match (service, report.without_service.get(&basis.gateway)) {
            (Some(service), _) => {
                service_addresses(&name, service, settings.publishing_type(), basis)
            }
            (None, Some(why)) => awaiting(why.clone()),
            (None, None) => awaiting(format!("Service {name} does not exist yet")),
        };
        (basis.gateway.clone(), addresses)
    });
    addresses.collect()
}

pub(super) fn awaiting(why: String) -> ServiceAddresses {
    ServiceAddresses {
        awaited: Some(why),
        ..ServiceAddresses::default()
    }
}

fn service_addresses(
    name: &NamespacedName,
    service: &Value,
    type_: &PublishingType,
    basis: &Basis,
) -> ServiceAddresses {
    if *type_ != PublishingType::LoadBalancer {
        let all = service
            .pointer("/spec/clusterIPs")
            .and_then(Value::as_array);
        let ips = all.into_iter().flatten().filter_map(Value::as_str);
        let ips = ips.filter(|text| text.parse::<IpAddr>().is_ok());
        let addresses: Vec<String> = ips.take(MAX_ADDRESSES).map(str::to_owned).collect();
        let awaited = addresses
            .is_empty()
            .then(|| format!("Service {name} has no address in the cluster yet"));
        return ServiceAddresses {
            addresses,
            awaited,
            ..ServiceAddresses::default()
        };
    }
    let ServiceRequest {
        ports: _,
        gives_addresses: _,
        addresses: requested,
    } = &basis.request;
    let (addresses, notes) = load_balancer_addresses(service);
    let awaited = addresses.is_empty().then(|| {
        let class = match service.pointer("/spec/loadBalancerClass") {
            Some(Value::String(class)) => format!(" of class {:?}", short(class)),
            _ => String::new(),
        };
        let mut why = format!(
            "no load balancer{class} has assigned Service {name} an address yet; `kubectl \
            describe service -n {} {}` shows the events of its controller",
            name.namespace, name.name
        );
        for note in &notes {
            why = format!("{why}; {note}");
        }
        why
    });
    let given = addresses.join(", ");
    let lacking = requested.iter().filter(|ip| !addresses.contains(ip));
    let unusable = lacking.filter(|_| awaited.is_none()).map(|ip| {
        (
            ip.clone(),
            format!("the load balancer has assigned {given}"),
        )
    });
    ServiceAddresses {
        unusable: unusable.collect(),
        addresses,
        notes: if awaited.is_none() { notes } else { Vec::new() },
        awaited,
    }
}

/// Ignores addresses without open ports, and returns notes about closed ports.
fn load_balancer_addresses(service: &Value) -> (Vec<String>, Vec<String>) {
    let all = service.pointer("/status/loadBalancer/ingress");
    let all = all.and_then(Value::as_array).into_iter().flatten();
    let (mut addresses, mut seen, mut notes) = (Vec::new(), BTreeSet::new(), Vec::new());
    for ingress in all.take(MAX_READ) {
        let ip = ingress["ip"].as_str().and_then(|ip| ip.parse().ok());
        let ip = ip.map(|ip: IpAddr| ip.to_string());
        let hostname = ingress["hostname"].as_str().map(str::to_lowercase);
        let Some(address) = ip.or_else(|| hostname.filter(|name| is_dns_subdomain(name))) else {
            continue;
        };
        let ports = ingress["ports"].as_array().map(Vec::as_slice);
        let ports = ports.unwrap_or_default().iter().take(MAX_READ);
        let (closed, open): (Vec<_>, Vec<_>) = ports.partition(|port| port["error"].is_string());
        for port in &closed {
            let (number, protocol) = (&port["port"], port["protocol"].as_str().unwrap_or("TCP"));
            let error = short(port["error"].as_str().unwrap_or_default());
            notes.push(format!(
                "the load balancer does not open {protocol} port {number} at {address}: {error}"
            ));
        }
        if (closed.is_empty() || !open.is_empty()) && seen.insert(address.clone()) {
            addresses.push(address);
        }
    }
    addresses.truncate(MAX_ADDRESSES);
    notes.truncate(MAX_NOTES);
    (addresses, notes)
}

pub(super) fn short(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn balanced(ingress: &Value, requested: &[&str]) -> ServiceAddresses {
        let service = json!({
            "spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "loadBalancerClass": "example.com/lb"},
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        let gateway = json!({"metadata": {"name": "edge", "namespace": "web", "uid": "u"}, "spec": {"gatewayClassName": "c"}});
        let gateway = serde_json::from_value(gateway).expect("an object");
        let mut basis = Basis::of(&gateway).expect("a Gateway");
        basis.request.addresses = requested.iter().map(ToString::to_string).collect();
        let name = NamespacedName::new("web", "edge-c");
        service_addresses(&name, &service, &PublishingType::LoadBalancer, &basis)
    }

    #[test]
    fn load_balancer_addresses_are_valid_ips_and_hostnames() {
        let found = balanced(
            &json!([{"ip": "192.0.2.1"}, {"hostname": "LB.example.com"}, {"ip": "bad"}, {"hostname": "a b"}, {"ip": "192.0.2.1"}, {}]),
            &["192.0.2.1"],
        );
        assert_eq!(found.addresses, ["192.0.2.1", "lb.example.com"]);
        assert_eq!((found.awaited, found.unusable.len()), (None, 0));
    }

    #[test]
    fn missing_address_reports_what_is_awaited() {
        for ingress in [json!(null), json!([]), json!([{"ip": "bad"}])] {
            let found = balanced(&ingress, &["192.0.2.1"]);
            assert!(found.addresses.is_empty() && found.unusable.is_empty());
            let why = found.awaited.expect("a reason");
            assert!(
                why.starts_with("no load balancer of class \"example.com/lb\" has assigned Service web/edge-c an address yet"),
                "{why}"
            );
        }
    }

    #[test]
    fn portless_address_is_ignored_and_errors_are_reported() {
        let port = |port: u16, error: Option<&str>| json!({"port": port, "protocol": "TCP", "error": error});
        let some =
            json!([{"ip": "192.0.2.1", "ports": [port(80, None), port(443, Some("Taken"))]}]);
        let found = balanced(&some, &[]);
        assert_eq!(found.addresses, ["192.0.2.1"]);
        let expected = "the load balancer does not open TCP port 443 at 192.0.2.1: Taken";
        assert_eq!(found.notes, [expected]);
        let none = json!([{"ip": "192.0.2.1", "ports": [port(443, Some("Taken"))]}]);
        let found = balanced(&none, &[]);
        assert!(found.addresses.is_empty());
        let why = found.awaited.expect("a reason");
        assert!(why.ends_with(expected), "{why}");
    }

    #[test]
    fn requested_address_is_unusable_if_another_is_given() {
        let found = balanced(&json!([{"ip": "192.0.2.1"}]), &["192.0.2.9", "192.0.2.1"]);
        let unusable = BTreeMap::from([(
            "192.0.2.9".to_owned(),
            "the load balancer has assigned 192.0.2.1".to_owned(),
        )]);
        assert_eq!(found.unusable, unusable);
    }
}
