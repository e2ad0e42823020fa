//! Settings that a Gateway requests for its Kubernetes Service.

use std::collections::BTreeSet;

use sesame_proto::schema::{Protocol, Transport};

use super::CheckedGateway;
use sesame_kinds::api::PublishingType;

/// The ports and addresses that a Gateway, or several merged Gateways, request for the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceRequest {
    /// External ports of all accepted listeners, including the listeners of ListenerSets.
    pub ports: BTreeSet<(Transport, u16)>,
    /// True if clients connect to the addresses of the Service or of an upstream Gateway.
    pub gives_addresses: bool,
    /// IP addresses requested from a load balancer or an upstream Gateway.
    pub addresses: Vec<String>,
}

impl ServiceRequest {
    pub(crate) fn add(&mut self, other: Self) {
        let Self {
            ports,
            gives_addresses,
            addresses,
        } = other;
        self.ports.extend(ports);
        self.gives_addresses |= gives_addresses;
        self.addresses.extend(addresses);
    }

    pub(crate) fn of(gateway: &CheckedGateway<'_>) -> Self {
        let accepted = gateway.listeners.iter().filter(|it| it.accepted.good());
        let over_http3 = gateway.over_http3().into_iter();
        let over_http3 = over_http3.filter(|(_, serves)| serves.is_ok());
        let ports = accepted.filter_map(|listener| {
            let transport = match listener.protocol? {
                Protocol::RawUdp => Transport::Udp,
                Protocol::Http | Protocol::Https | Protocol::Tls | Protocol::RawTcp => {
                    Transport::Tcp
                }
            };
            Some((transport, listener.port?))
        });
        Self {
            ports: ports
                .chain(over_http3.map(|(port, _)| (Transport::Udp, port)))
                .collect(),
            gives_addresses: match gateway.settings.publishing_type() {
                PublishingType::ClusterIp
                | PublishingType::LoadBalancer
                | PublishingType::UpstreamGateway => true,
                // Clients use the Service's addresses, because Pod addresses change too often.
                PublishingType::NodePort => gateway.settings.is_on_pod_network(),
                _ => false,
            },
            addresses: gateway.load_balancer_addresses.clone(),
        }
    }
}
