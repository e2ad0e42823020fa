//! Backends: the Service ports that routes refer to, as snapshots have them.
//!
//! There is one Backend for each Service port and way to speak to it, however many routes refer to it. An invalid
//! reference is a value, so that its share of the traffic can be refused.

mod app_protocols;
mod backend;
pub(crate) mod endpoints;
mod references;
pub(crate) mod tls_policies;
mod traffic;

use std::collections::HashMap;

use sesame_proto::schema::{Backend, EndpointSet};
use sha2::{Digest as _, Sha256};

use self::app_protocols::is_https;
use self::backend::backend;
pub(crate) use self::backend::{MeshTransport, reached_by};
use self::endpoints::Slices;
use self::references::{SERVICES, service_port};
use self::tls_policies::{Applied, Policies, ServiceName};
pub(crate) use self::traffic::Traffic;
use crate::api::{BackendRef, CollectorRef, Metadata, NamespacedName, ServicePort};
use crate::resolve::context::ResolveContext;
use crate::resolve::context::grants::Referrer;
use crate::status::{Grounds, Reason, unsupported};
use crate::world::World;

/// The target of a valid reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackendTarget {
    /// The Backend of this name.
    Backend(String),
    /// No Backend: the reference is valid, but traffic to it is refused, with this reason.
    Refused(String),
}

/// A reference that was looked up.
pub(crate) struct ResolvedRef<'w> {
    /// The Service, if it has policies that the traffic heeds.
    pub(crate) policed: Option<ServiceName<'w>>,
    pub(crate) target: Result<BackendTarget, Grounds>,
}

/// The place of the entry for a Service port, or the reason why traffic to it is refused; or the fault of the reference.
type FoundPort = Result<Result<usize, String>, Grounds>;

/// The Service ports that routes refer to.
pub(crate) struct Backends<'w> {
    slices: Slices<'w>,
    policies: Policies<'w>,
    ports: HashMap<(&'w str, &'w str, i32, Traffic), FoundPort>,
    entries: Vec<BackendEntry<'w>>,
    by_name: HashMap<String, usize>,
}

struct BackendEntry<'w> {
    backend: Backend,
    service: &'w Metadata,
    port: &'w ServicePort,
    endpoints: Option<EndpointSet>,
}

impl<'w> Backends<'w> {
    pub(crate) fn new(world: &'w World, policies: Policies<'w>) -> Self {
        let likely = world.services.len().min(world.http_routes.len());
        Self {
            slices: Slices::new(world),
            policies,
            ports: HashMap::with_capacity(likely),
            entries: Vec::with_capacity(likely),
            by_name: HashMap::with_capacity(likely),
        }
    }

    pub(crate) fn policies(&self) -> &Policies<'w> {
        &self.policies
    }

    /// Resolves a reference of `referrer`.
    pub(crate) fn resolve(
        &mut self,
        referrer: Referrer<'w>,
        reference: &'w BackendRef,
        traffic: Traffic,
        cx: &ResolveContext<'w, '_>,
    ) -> ResolvedRef<'w> {
        let service = match SERVICES.find(reference.into(), referrer, &cx.grants) {
            Ok(service) => service,
            Err(fault) => {
                return ResolvedRef {
                    policed: None,
                    target: Err(fault),
                };
            }
        };
        let policed = traffic.heeds_policies() && self.policies.has(service);
        ResolvedRef {
            policed: policed.then_some(service),
            target: self.target(service, reference.port, traffic, cx),
        }
    }

    /// Resolves a reference to a collector, and returns true if it is spoken to by HTTP, and not by gRPC: that is for its port to
    /// say.
    pub(crate) fn collector(
        &mut self,
        referrer: Referrer<'_>,
        reference: &CollectorRef,
        cx: &ResolveContext<'w, '_>,
    ) -> (ResolvedRef<'w>, bool) {
        let refused = |fault| {
            let target = Err(fault);
            let policed = None;
            (ResolvedRef { policed, target }, false)
        };
        let (namespace, name) = match SERVICES.find(reference.into(), referrer, &cx.grants) {
            Ok(service) => service,
            Err(fault) => return refused(fault),
        };
        let Some(service) = cx.world.services.get(namespace, name) else {
            let message = format!("Service {namespace}/{name} does not exist");
            return refused((Reason::BackendNotFound, message));
        };
        let ports = &service.spec.ports;
        let port = ports.iter().find(|port| Some(port.port) == reference.port);
        let app_protocol = port.and_then(|port| port.app_protocol.as_deref());
        let http =
            app_protocol.is_some_and(|name| name.eq_ignore_ascii_case("http") || is_https(name));
        let traffic = if http { Traffic::Http } else { Traffic::Grpc };
        let Metadata {
            namespace, name, ..
        } = &service.metadata;
        let service = (namespace.as_str(), name.as_str());
        let resolved = ResolvedRef {
            policed: self.policies.has(service).then_some(service),
            target: self.target(service, reference.port, traffic, cx),
        };
        (resolved, http)
    }

    fn target(
        &mut self,
        (namespace, name): ServiceName<'w>,
        port: Option<i32>,
        traffic: Traffic,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<BackendTarget, Grounds> {
        let Some(port) = port else {
            return Err(unsupported(format!(
                "port is missing; set the port of Service {namespace}/{name}"
            )));
        };
        let key = (namespace, name, port, traffic);
        let found = if let Some(found) = self.ports.get(&key) {
            found.clone()
        } else {
            let found = self.find(namespace, name, port, traffic, cx);
            self.ports.insert(key, found.clone());
            found
        };
        Ok(match found? {
            Ok(index) => {
                let entry = self.entries.get(index);
                BackendTarget::Backend(entry.map(|e| e.backend.name.clone()).unwrap_or_default())
            }
            Err(why) => BackendTarget::Refused(why),
        })
    }

    fn find(
        &mut self,
        namespace: &'w str,
        name: &'w str,
        port: i32,
        traffic: Traffic,
        cx: &ResolveContext<'w, '_>,
    ) -> FoundPort {
        let key = NamespacedName::new(namespace, name);
        let Some(service) = cx.world.services.get(namespace, name) else {
            let message = format!("Service {key} does not exist");
            return Err((Reason::BackendNotFound, message));
        };
        let port = service_port(&key, service, port, traffic)?;
        let policy = if traffic.heeds_policies() {
            self.policies.of((namespace, name), &port.name)
        } else {
            None
        };
        let tls = match policy {
            Some(Applied::Refused(why)) => return Ok(Err(why)),
            Some(Applied::Tls(tls)) => Some(tls),
            None => None,
        };
        let backend = backend(&key, port, traffic, tls)?;
        if let Some(known) = self.by_name.get(&backend.name) {
            return Ok(Ok(*known));
        }
        let index = self.entries.len();
        self.by_name.insert(backend.name.clone(), index);
        self.entries.push(BackendEntry {
            backend,
            service: &service.metadata,
            port,
            endpoints: None,
        });
        Ok(Ok(index))
    }

    /// Returns a Backend, by the name that [`Self::resolve`] returned, and its endpoints.
    pub(crate) fn named(
        &mut self,
        name: &str,
        cx: &mut ResolveContext<'w, '_>,
    ) -> Option<(&Backend, &EndpointSet)> {
        let entry = self.entries.get_mut(*self.by_name.get(name)?)?;
        let BackendEntry {
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

    /// Returns the session key of the Backend with this name; empty if there is none.
    pub(crate) fn session_key(&self, name: &str) -> Vec<u8> {
        let index = self.by_name.get(name);
        let entry = index.and_then(|index| self.entries.get(*index));
        entry.map_or_else(Vec::new, |entry| session_key(entry.service))
    }
}

/// Returns the key of the digests that stand for the endpoints of a Service in sessions.
///
/// It is the same for every Gateway, host and revision, so that a session survives all of them. The UID is the part of it
/// that clients cannot know; a Service in files mostly has none.
fn session_key(service: &Metadata) -> Vec<u8> {
    let Metadata {
        namespace,
        name,
        uid,
        ..
    } = service;
    let text = format!("session persistence of Service {namespace}/{name} {uid}");
    Sha256::digest(text).to_vec()
}
