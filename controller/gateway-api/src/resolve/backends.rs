//! Backend references: which Service port each means, or why it is no good.
//!
//! One Backend for each Service port and way to speak to it, however many routes do; an invalid reference
//! is a value, so that its share of the traffic can be refused.

use std::collections::{BTreeSet, HashMap};

use sesame_proto::digest;
use sesame_proto::schema::{AppProtocol, Backend, BackendTls, EndpointSet};

use super::app_protocols::{http_protocol, is_https};
use super::backend_tls::{Applied, Policies, ServiceName};
use super::context::Context;
use super::endpoints::{self, Slices};
use super::grants::{Referrer, Target};
use super::names;
use super::sessions;
use crate::api::{BackendRef, Metadata, NamespacedName, Service, ServicePort, ServiceSpec};
use crate::status::Reason;
use crate::world::World;

/// What a route sends to its backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Traffic {
    /// Requests of HTTPRoutes.
    Http,
    /// Requests of GRPCRoutes.
    Grpc,
    /// Of TLSRoutes where TLS is passed through.
    Connections,
    /// Of TCPRoutes: the client's own bytes, over TLS where a policy says so.
    Bytes,
    /// Of TLSRoutes where TLS ends: to the backend, TLS is what a policy says.
    Terminated,
    /// Of UDPRoutes.
    Datagrams,
}

impl Traffic {
    /// The status of a request whose backend is invalid. A gRPC client reads 503 as UNAVAILABLE.
    pub(super) fn refusal(self) -> u32 {
        match self {
            Self::Grpc => 503,
            Self::Http | Self::Connections | Self::Bytes | Self::Terminated | Self::Datagrams => {
                500
            }
        }
    }

    /// As Services name it.
    fn transport(self) -> &'static str {
        match self {
            Self::Http | Self::Grpc | Self::Connections | Self::Bytes | Self::Terminated => "TCP",
            Self::Datagrams => "UDP",
        }
    }

    /// Whether a BackendTLSPolicy says how it is sent on. What is passed through is the client's own TLS.
    fn heeds_policies(self) -> bool {
        match self {
            Self::Http | Self::Grpc | Self::Bytes | Self::Terminated => true,
            Self::Connections | Self::Datagrams => false,
        }
    }
}

/// Why a reference is no good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefFault {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// What a valid reference leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// The Backend of this name.
    Backend(String),
    /// Nothing that traffic may be sent to, though the reference is fine; with the reason.
    Refused(String),
}

/// Where a Service port is found.
type Place = Result<Result<usize, String>, RefFault>;

/// The Service ports that routes refer to.
pub(super) struct Backends<'w> {
    slices: Slices<'w>,
    policies: Policies<'w>,
    ports: HashMap<(&'w str, &'w str, i32, Traffic), Place>,
    entries: Vec<Entry<'w>>,
    by_name: HashMap<String, usize>,
    /// Services with policies that were referred to since somebody asked.
    policed: BTreeSet<ServiceName<'w>>,
}

struct Entry<'w> {
    backend: Backend,
    service: &'w Metadata,
    port: &'w ServicePort,
    endpoints: Option<EndpointSet>,
}

impl<'w> Backends<'w> {
    pub(super) fn new(world: &'w World, policies: Policies<'w>) -> Self {
        let likely = world.services.len().min(world.http_routes.len());
        Self {
            slices: Slices::new(world),
            policies,
            ports: HashMap::with_capacity(likely),
            entries: Vec::with_capacity(likely),
            by_name: HashMap::with_capacity(likely),
            policed: BTreeSet::new(),
        }
    }

    pub(super) fn policies(&self) -> &Policies<'w> {
        &self.policies
    }

    /// The Services with policies that were referred to since the last call, by traffic that heeds them.
    pub(super) fn take_policed(&mut self) -> Vec<ServiceName<'w>> {
        std::mem::take(&mut self.policed).into_iter().collect()
    }

    /// The Backend that `reference` means where `referrer` says it.
    pub(super) fn resolve(
        &mut self,
        referrer: Referrer<'w>,
        reference: &'w BackendRef,
        traffic: Traffic,
        cx: &Context<'w, '_>,
    ) -> Result<Reached, RefFault> {
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
                    "{} {name:?} is not supported; expected a Service of the core group",
                    names::group_kind(group, kind)
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
        if let Err(why) = cx.grants.check(referrer, target) {
            return fault(Reason::RefNotPermitted, why);
        }
        if let Err(why) = names::check_object(namespace, name) {
            return fault(Reason::BackendNotFound, why);
        }
        if traffic.heeds_policies() && self.policies.has((namespace, name)) {
            self.policed.insert((namespace, name));
        }
        let Some(port) = *port else {
            return fault(
                Reason::UnsupportedValue,
                format!("port is missing; set the port of Service {namespace}/{name}"),
            );
        };
        let found = if let Some(found) = self.ports.get(&(namespace, name, port, traffic)) {
            found.clone()
        } else {
            let found = self.find(namespace, name, port, traffic, cx);
            self.ports
                .insert((namespace, name, port, traffic), found.clone());
            found
        };
        Ok(match found? {
            Ok(index) => {
                let entry = self.entries.get(index);
                Reached::Backend(entry.map(|e| e.backend.name.clone()).unwrap_or_default())
            }
            Err(why) => Reached::Refused(why),
        })
    }

    fn find(
        &mut self,
        namespace: &'w str,
        name: &'w str,
        port: i32,
        traffic: Traffic,
        cx: &Context<'w, '_>,
    ) -> Place {
        let fault = |reason, message| Err(RefFault { reason, message });
        let key = NamespacedName::new(namespace, name);
        let Some(service) = cx.world.services.get(namespace, name) else {
            return fault(
                Reason::BackendNotFound,
                format!("Service {key} does not exist"),
            );
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
        self.entries.push(Entry {
            backend,
            service: &service.metadata,
            port,
            endpoints: None,
        });
        Ok(Ok(index))
    }

    /// A Backend by the name that [`Self::resolve`] gave, and its endpoints.
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

    /// Returns the session key of the Backend with this name; empty if there is none.
    pub(super) fn session_key(&self, name: &str) -> Vec<u8> {
        let index = self.by_name.get(name);
        let entry = index.and_then(|index| self.entries.get(*index));
        entry.map_or_else(Vec::new, |entry| sessions::key(entry.service))
    }
}

/// The port of a Service with this number.
fn service_port<'w>(
    key: &NamespacedName,
    service: &'w Service,
    number: i32,
    traffic: Traffic,
) -> Result<&'w ServicePort, RefFault> {
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
    if !ports.iter().any(|port| port.port == number) || names::port(number).is_none() {
        let known: Vec<String> = ports.iter().map(|port| port.port.to_string()).collect();
        return fault(
            Reason::BackendNotFound,
            format!(
                "Service {key} has no port {number}; it has {}",
                known.join(", ")
            ),
        );
    }
    let transport = traffic.transport();
    endpoints::service_port(&service.spec, number, transport).ok_or_else(|| RefFault {
        reason: Reason::UnsupportedProtocol,
        message: format!("port {number} of Service {key} is not {transport}"),
    })
}

/// The Backend that gets this traffic on this port. Plain HTTP has the port's own name; what is spoken to
/// differently is another Backend of the port.
fn backend(
    key: &NamespacedName,
    port: &ServicePort,
    traffic: Traffic,
    tls: Option<&BackendTls>,
) -> Result<Backend, RefFault> {
    let number = port.port;
    let app_protocol = port.app_protocol.as_deref();
    let http = http_protocol(app_protocol, tls.is_some());
    let expected = match app_protocol {
        Some("kubernetes.io/wss") => "kubernetes.io/ws, or a BackendTLSPolicy for the Service",
        Some(name) if is_https(name) => "http, or a BackendTLSPolicy for the Service",
        _ => "http, kubernetes.io/h2c or kubernetes.io/ws",
    };
    let asks_for_tls =
        app_protocol.is_some_and(|name| is_https(name) || name == "kubernetes.io/wss");
    let (protocol, expected) = match (traffic, http) {
        // What was encrypted until here does not go on in plain text to who expects TLS.
        (Traffic::Terminated, _) if asks_for_tls && tls.is_none() => {
            (None, "a BackendTLSPolicy for the Service")
        }
        (Traffic::Connections | Traffic::Bytes | Traffic::Terminated, _) => {
            (Some(AppProtocol::TcpBytes), "")
        }
        (Traffic::Datagrams, _) => (Some(AppProtocol::UdpDatagrams), ""),
        (Traffic::Http, http) => (http, expected),
        // Nothing else carries gRPC.
        (Traffic::Grpc, Some(AppProtocol::Http1 | AppProtocol::Http2)) => {
            (Some(AppProtocol::Http2), "")
        }
        (Traffic::Grpc, _) if app_protocol.is_some_and(is_https) => {
            (None, "grpc, or a BackendTLSPolicy for the Service")
        }
        (Traffic::Grpc, _) => (None, "grpc or kubernetes.io/h2c"),
    };
    let Some(protocol) = protocol else {
        return Err(RefFault {
            reason: Reason::UnsupportedProtocol,
            message: format!(
                "port {number} of Service {key} has appProtocol {:?}; expected {expected}",
                app_protocol.unwrap_or_default()
            ),
        });
    };
    let name = endpoints::set_name(key, number, "TCP");
    let mut backend = Backend {
        name: String::new(),
        endpoints: match traffic {
            Traffic::Datagrams => endpoints::set_name(key, number, traffic.transport()),
            Traffic::Http
            | Traffic::Grpc
            | Traffic::Connections
            | Traffic::Bytes
            | Traffic::Terminated => name.clone(),
        },
        protocol: protocol.into(),
        tls: tls.cloned(),
        session_key: Vec::new(),
    };
    backend.name = if Some(protocol) == http && tls.is_none() {
        name
    } else {
        distinct_name(&name, &backend)
    };
    Ok(backend)
}

/// A name that says what differs from plain HTTP to the port.
fn distinct_name(port: &str, backend: &Backend) -> String {
    format!("{port}/{}", digest::backend(backend))
}

/// The Backend as a Gateway reaches it that shows this key to backends; none if it speaks no TLS.
pub(super) fn showing_key(backend: &Backend, client_key: &str) -> Option<Backend> {
    let tls = backend.tls.as_ref()?;
    let mut shown = Backend {
        tls: Some(BackendTls {
            client_key: client_key.to_owned(),
            ..tls.clone()
        }),
        ..backend.clone()
    };
    // Only ports have TLS, so that the set of their endpoints has the port's name.
    shown.name = distinct_name(&shown.endpoints, &shown);
    Some(shown)
}
