//! Collects the facts from which a Gateway's objects are built, including the results of resolution
//! and the hosts' reports.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::owned::{implied_uid, is_gateway};
use crate::statuses::{HostEndpoint, HostsByGateway, ServiceRequests};
use crate::watch::Received;
use sesame_kinds::api::NamespacedName;
use sesame_published::names::ADOPT_ANNOTATION;
use sesame_resolver::ServiceRequest;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    pub(super) gateway: NamespacedName,
    /// True for merged Gateways; `gateway` is then their published name.
    pub(super) is_class: bool,
    pub(super) uid: String,
    /// RFC 3339 timestamp, so string order is chronological.
    pub(super) created: String,
    pub(super) class: String,
    /// For a second Gateway, the Gateway to which it forwards.
    pub(super) leads_to: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) adopt: Option<String>,
    pub(super) request: ServiceRequest,
    pub(super) hosts: BTreeMap<IpAddr, HostEndpoint>,
}

impl Basis {
    /// Returns `None` if the Gateway is invalid or being deleted.
    pub(super) fn of(received: &Received) -> Option<Self> {
        if received.is_deleted() {
            return None;
        }
        Some(Self {
            gateway: received.name(),
            is_class: false,
            uid: received.text("/metadata/uid")?,
            created: received
                .text("/metadata/creationTimestamp")
                .unwrap_or_default(),
            class: received.text("/spec/gatewayClassName")?,
            leads_to: leads_to(received),
            labels: received.texts("/spec/infrastructure/labels"),
            annotations: received.texts("/spec/infrastructure/annotations"),
            adopt: adopt(received),
            request: ServiceRequest::default(),
            hosts: BTreeMap::new(),
        })
    }

    pub(super) fn for_class(received: &Received, namespace: &str) -> Option<Self> {
        let class = received.name().name;
        Some(Self {
            gateway: NamespacedName::new(namespace, &class),
            is_class: true,
            uid: received.text("/metadata/uid")?,
            created: received
                .text("/metadata/creationTimestamp")
                .unwrap_or_default(),
            class,
            leads_to: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            adopt: adopt(received),
            request: ServiceRequest::default(),
            hosts: BTreeMap::new(),
        })
    }

    /// The basis of a Gateway or class that only the configuration declares.
    pub(super) fn implied(name: &NamespacedName, class: &str, is_class: bool) -> Self {
        Self {
            gateway: name.clone(),
            is_class,
            uid: implied_uid(name),
            // Existing Gateways take precedence, because this sorts last.
            created: "~".to_owned(),
            class: class.to_owned(),
            leads_to: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            adopt: None,
            request: ServiceRequest::default(),
            hosts: BTreeMap::new(),
        }
    }

    pub(super) fn without_hosts(&self) -> Self {
        Self {
            hosts: BTreeMap::new(),
            ..self.clone()
        }
    }

    pub(super) fn update(&mut self, requests: &ServiceRequests, hosts: &HostsByGateway) {
        let request = requests.get(&self.gateway).cloned();
        self.request = request.unwrap_or_default();
        let hosts = hosts.as_ref().and_then(|hosts| hosts.get(&self.gateway));
        self.hosts = hosts.cloned().unwrap_or_default();
    }
}

fn adopt(received: &Received) -> Option<String> {
    let mut annotations = received.texts("/metadata/annotations");
    annotations.remove(ADOPT_ANNOTATION)
}

fn leads_to(received: &Received) -> Option<String> {
    let owners = received.value().pointer("/metadata/ownerReferences")?;
    let owner = owners.as_array()?.iter().find(|owner| is_gateway(owner))?;
    Some(owner["name"].as_str()?.to_owned())
}
