//! Backend references: which Service port each means, or why it is no good.
//!
//! One Backend for each Service port and way to speak to it, however many routes do; an invalid reference
//! is a value, so that its share of the traffic can be refused.

use std::collections::{HashMap, HashSet};

use sesame_proto::digest;
use sesame_proto::schema::{AppProtocol, Backend, EndpointSet};

use super::context::Context;
use super::endpoints::Slices;
use super::grants::{Referrer, Target};
use super::names;
use crate::api::{BackendRef, NamespacedName, Service, ServicePort, ServiceSpec};
use crate::status::Reason;
use crate::world::World;

/// What a route sends to its backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Traffic {
    /// Requests of HTTPRoutes.
    Http,
    /// Requests of GRPCRoutes.
    Grpc,
    /// Of TLSRoutes and TCPRoutes.
    Connections,
    /// Of UDPRoutes.
    Datagrams,
}

impl Traffic {
    /// The status of a request whose backend is invalid. A gRPC client reads 503 as UNAVAILABLE.
    pub(super) fn refusal(self) -> u32 {
        match self {
            Self::Grpc => 503,
            Self::Http | Self::Connections | Self::Datagrams => 500,
        }
    }

    /// As Services name it.
    fn transport(self) -> &'static str {
        match self {
            Self::Http | Self::Grpc | Self::Connections => "TCP",
            Self::Datagrams => "UDP",
        }
    }
}

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
    ports: HashMap<(&'w str, &'w str, i32, Traffic), Result<usize, RefFault>>,
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
    pub(super) fn resolve(
        &mut self,
        referrer: Referrer<'w>,
        reference: &'w BackendRef,
        traffic: Traffic,
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
        if !cx.grants.permit(referrer, target) {
            return fault(
                Reason::RefNotPermitted,
                format!(
                    "no ReferenceGrant in namespace {namespace:?} lets a {} of namespace {:?} refer to Service {name:?}",
                    referrer.kind, referrer.namespace
                ),
            );
        }
        if let Err(why) = names::check_object(namespace, name) {
            return fault(Reason::BackendNotFound, why);
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
        traffic: Traffic,
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
        let port = service_port(key, service, port, traffic)?;
        let backend = backend(key, port, traffic)?;
        if let Some(known) = self.by_name.get(&backend.name) {
            return Ok(*known);
        }
        let index = self.entries.len();
        self.by_name.insert(backend.name.clone(), index);
        self.entries.push(Entry {
            backend,
            service: key,
            port,
            endpoints: None,
        });
        Ok(index)
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
    let transport = traffic.transport();
    let found = same_number.find(|port| match port.protocol.as_str() {
        "" => transport == "TCP",
        protocol => protocol == transport,
    });
    found.ok_or_else(|| RefFault {
        reason: Reason::UnsupportedProtocol,
        message: format!("port {number} of Service {key} is not {transport}"),
    })
}

/// The Backend that gets this traffic on this port. HTTP has the port's own name; what is spoken to
/// differently is another Backend of the port.
fn backend(
    key: &NamespacedName,
    port: &ServicePort,
    traffic: Traffic,
) -> Result<Backend, RefFault> {
    let number = port.port;
    let app_protocol = port.app_protocol.as_deref();
    let http = http_protocol(app_protocol);
    let expected = "http, kubernetes.io/h2c or kubernetes.io/ws";
    let (protocol, expected) = match (traffic, http) {
        (Traffic::Connections, _) => (Some(AppProtocol::TcpBytes), ""),
        (Traffic::Datagrams, _) => (Some(AppProtocol::UdpDatagrams), ""),
        (Traffic::Http, http) => (http, expected),
        // Nothing else carries gRPC.
        (Traffic::Grpc, Some(AppProtocol::Http1 | AppProtocol::Http2)) => {
            (Some(AppProtocol::Http2), "")
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
    let name = format!("Service/{key}/{number}");
    let mut backend = Backend {
        name: String::new(),
        // TCP and UDP ports may share a number.
        endpoints: match traffic {
            Traffic::Datagrams => format!("{name}/UDP"),
            Traffic::Http | Traffic::Grpc | Traffic::Connections => name.clone(),
        },
        protocol: protocol.into(),
        tls: None,
    };
    backend.name = if Some(protocol) == http {
        name
    } else {
        format!("{name}/{}", digest::backend(&backend))
    };
    Ok(backend)
}

/// What is spoken on a port where a route says no more than HTTP; none if it is unknown.
fn http_protocol(app_protocol: Option<&str>) -> Option<AppProtocol> {
    match app_protocol {
        None | Some("") => Some(AppProtocol::Http1),
        // Names of IANA are the same in upper case.
        Some(name)
            if ["http", "https"]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known)) =>
        {
            Some(AppProtocol::Http1)
        }
        Some("kubernetes.io/h2c" | "grpc") => Some(AppProtocol::Http2),
        Some("kubernetes.io/ws") => Some(AppProtocol::Websocket),
        Some(_) => None,
    }
}
