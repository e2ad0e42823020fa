//! The fields of a Gateway from which its Service is made, with what resolution and reports say. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::statuses::{HostEndpoint, HostsByGateway, ServiceRequests};
use crate::watch::Received;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::ServiceRequest;

/// Fields of a Gateway from which its objects are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    pub(super) gateway: NamespacedName,
    pub(super) uid: String,
    /// Time of creation as the API writes it: the earlier is the smaller text.
    pub(super) created: String,
    pub(super) class: String,
    /// Labels of `spec.infrastructure`.
    pub(super) labels: BTreeMap<String, String>,
    /// Annotations of `spec.infrastructure`.
    pub(super) annotations: BTreeMap<String, String>,
    /// Wishes for the Service, as resolution accepts them.
    pub(super) request: ServiceRequest,
    /// Hosts that serve it, by address.
    pub(super) hosts: BTreeMap<IpAddr, HostEndpoint>,
}

impl Basis {
    /// Reads a Gateway; none if it is being deleted, or is no Gateway at all.
    pub(super) fn of(received: &Received) -> Option<Self> {
        if received.is_deleted() {
            return None;
        }
        Some(Self {
            gateway: received.name(),
            uid: received.text("/metadata/uid")?,
            created: received
                .text("/metadata/creationTimestamp")
                .unwrap_or_default(),
            class: received.text("/spec/gatewayClassName")?,
            labels: received.texts("/spec/infrastructure/labels"),
            annotations: received.texts("/spec/infrastructure/annotations"),
            request: ServiceRequest::default(),
            hosts: BTreeMap::new(),
        })
    }

    /// Takes over what resolution and reports say now.
    pub(super) fn tell(&mut self, requests: &ServiceRequests, hosts: &HostsByGateway) {
        let request = requests.get(&self.gateway).cloned();
        self.request = request.unwrap_or_default();
        let hosts = hosts.as_ref().and_then(|hosts| hosts.get(&self.gateway));
        self.hosts = hosts.cloned().unwrap_or_default();
    }
}
