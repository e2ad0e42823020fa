//! Backend references: which Service port each means, or why it is no good.
//!
//! One Backend for each Service port that is referred to, however many routes do; an invalid reference
//! is a value, so that its share of the traffic can be refused.

use std::collections::{HashMap, HashSet};

use sesame_proto::schema::{AppProtocol, Backend, EndpointSet};

use super::context::Context;
use super::endpoints::Slices;
use super::grants::{Referrer, Target};
use super::names;
use crate::api::{BackendRef, NamespacedName, Service, ServicePort, ServiceSpec};
use crate::status::Reason;
use crate::world::World;

/// Why a reference is no good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefFault {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// The Service ports that routes refer to.
pub(super) struct Backends<'w> {
    slices: Slices<'w>,
    /// Services that a BackendTLSPolicy is for. Until such policies are served, traffic to them is refused:
    /// it must never go out in plain text.
    with_policy: HashSet<(&'w str, &'w str)>,
    ports: HashMap<(&'w str, &'w str, i32), Result<usize, RefFault>>,
    entries: Vec<Entry<'w>>,
    by_name: HashMap<String, usize>,
}

struct Entry<'w> {
    backend: Backend,
    service: &'w NamespacedName,
    port: &'w ServicePort,
    endpoints: Option<EndpointSet>,
}

impl<'w> Backends<'w> {
    pub(super) fn new(world: &'w World) -> Self {
        let with_policy = world
            .backend_tls_policies
            .iter()
            .flat_map(|(key, policy)| {
                policy
                    .spec
                    .target_refs
                    .iter()
                    .filter(|target| target.group.is_empty() && target.kind == "Service")
                    .map(|target| (key.namespace.as_str(), target.name.as_str()))
            })
            .collect();
        Self {
            slices: Slices::new(world),
            with_policy,
            ports: HashMap::new(),
            entries: Vec::new(),
            by_name: HashMap::new(),
        }
    }

    /// The name of the Backend that `reference` means where `referrer` says it.
    pub(super) fn resolve_http(
        &mut self,
        referrer: Referrer<'w>,
        reference: &'w BackendRef,
        cx: &Context<'w, '_>,
    ) -> Result<String, RefFault> {
        let BackendRef {
            group,
            kind,
            name,
            namespace,
            port,
            // Weights and filters are the caller's.
            weight: _,
            filters: _,
        } = reference;
        let fault = |reason, message| Err(RefFault { reason, message });
        let group = group.as_deref().unwrap_or_default();
        let kind = kind.as_deref().unwrap_or("Service");
        if !group.is_empty() || kind != "Service" {
            return fault(
                Reason::InvalidKind,
                format!(
                    "{group}/{kind} {name:?} is not supported; expected a Service of the core group"
                ),
            );
        }
        let namespace = namespace.as_deref().unwrap_or(referrer.namespace);
        let target = Target {
            group: "",
            kind: "Service",
            namespace,
            name,
        };
        if !cx.grants.permit(referrer, target) {
            return fault(
                Reason::RefNotPermitted,
                format!(
                    "no ReferenceGrant in namespace {namespace:?} lets a {} of namespace {:?} refer to Service {name:?}",
                    referrer.kind, referrer.namespace
                ),
            );
        }
        let Some(port) = *port else {
            return fault(
                Reason::UnsupportedValue,
                format!("port is missing; set the port of Service {namespace}/{name}"),
            );
        };
        let found = match self.ports.get(&(namespace, name, port)) {
            Some(found) => found.clone(),
            None => {
                let found = self.find(namespace, name, port, cx);
                self.ports.insert((namespace, name, port), found.clone());
                found
            }
        };
        let index = found?;
        Ok(self
            .entries
            .get(index)
            .map(|entry| entry.backend.name.clone())
            .unwrap_or_default())
    }

    fn find(
        &mut self,
        namespace: &'w str,
        name: &'w str,
        port: i32,
        cx: &Context<'w, '_>,
    ) -> Result<usize, RefFault> {
        let fault = |reason, message| Err(RefFault { reason, message });
        let key = NamespacedName::new(namespace, name);
        let Some((key, service)) = cx.world.services.get_key_value(&key) else {
            return fault(
                Reason::BackendNotFound,
                format!("Service {key} does not exist"),
            );
        };
        if self.with_policy.contains(&(namespace, name)) {
            return fault(
                Reason::UnsupportedValue,
                format!(
                    "Service {key} is the target of a BackendTLSPolicy, which is not supported yet"
                ),
            );
        }
        let (port, protocol) = http_port(key, service, port)?;
        let set = format!("Service/{key}/{}", port.port);
        let index = self.entries.len();
        self.by_name.insert(set.clone(), index);
        self.entries.push(Entry {
            backend: Backend {
                name: set.clone(),
                endpoints: set,
                protocol: protocol.into(),
                tls: None,
            },
            service: key,
            port,
            endpoints: None,
        });
        Ok(index)
    }

    /// A Backend by the name that [`Self::resolve_http`] gave, and its endpoints.
    pub(super) fn named(
        &mut self,
        name: &str,
        cx: &mut Context<'w, '_>,
    ) -> Option<(&Backend, &EndpointSet)> {
        let entry = self.entries.get_mut(*self.by_name.get(name)?)?;
        let Entry {
            backend,
            service,
            port,
            endpoints,
        } = entry;
        let endpoints = endpoints.get_or_insert_with(|| EndpointSet {
            name: backend.endpoints.clone(),
            endpoints: self.slices.endpoints(service, port, cx),
        });
        Some((backend, endpoints))
    }
}

/// The port of a Service with this number, and what is spoken on it.
fn http_port<'w>(
    key: &NamespacedName,
    service: &'w Service,
    number: i32,
) -> Result<(&'w ServicePort, AppProtocol), RefFault> {
    let fault = |reason, message| Err(RefFault { reason, message });
    let ServiceSpec {
        type_,
        external_name: _,
        ports,
    } = &service.spec;
    if type_ == "ExternalName" {
        return fault(
            Reason::UnsupportedValue,
            format!(
                "Service {key} has type ExternalName, which is not supported; use a Service with EndpointSlices"
            ),
        );
    }
    let mut same_number = ports.iter().filter(|port| port.port == number).peekable();
    if same_number.peek().is_none() || names::port(number).is_none() {
        let known: Vec<String> = ports.iter().map(|port| port.port.to_string()).collect();
        return fault(
            Reason::BackendNotFound,
            format!(
                "Service {key} has no port {number}; it has {}",
                known.join(", ")
            ),
        );
    }
    let Some(port) = same_number.find(|port| matches!(port.protocol.as_str(), "" | "TCP")) else {
        return fault(
            Reason::UnsupportedProtocol,
            format!("port {number} of Service {key} is not TCP"),
        );
    };
    let protocol = match port.app_protocol.as_deref() {
        None | Some("" | "http" | "https") => AppProtocol::Http1,
        Some("kubernetes.io/h2c") => AppProtocol::Http2,
        Some("kubernetes.io/ws") => AppProtocol::Websocket,
        Some(other) => {
            return fault(
                Reason::UnsupportedProtocol,
                format!(
                    "port {number} of Service {key} has appProtocol {other:?}; expected http, kubernetes.io/h2c or \
                     kubernetes.io/ws"
                ),
            );
        }
    };
    Ok((port, protocol))
}
