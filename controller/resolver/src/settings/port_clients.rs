//! Settings for clients, by port.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema::port::ProxyProtocol;
use sesame_proto::schema::{ClientAddress, Edge, Port, Transport};

use super::edge::EdgeDefaults;
use super::{client_addresses, clients, http3};
use crate::syntax::{limits, names};
use sesame_kinds::api::{AccessLogRules, EdgeSettings, Labels, PortEdge};

/// As in the schema.
const MAX_PORTS: usize = 64;

/// Settings for the clients of a port.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClientSettings {
    edge: Edge,
    /// `None` if the host's settings apply.
    client_address: Option<ClientAddress>,
    pub(super) proxy_protocol: ProxyProtocol,
    pub(super) http3: bool,
}

impl ClientSettings {
    /// Validation has already rejected invalid settings.
    fn new(edge: EdgeDefaults, settings: &EdgeSettings) -> Self {
        let client_address = settings.client_address.as_ref();
        let proxy_protocol = settings.proxy_protocol.as_ref();
        let proxy_protocol = proxy_protocol.and_then(|it| clients::proxy_protocol(it).ok());
        let of_http3 = settings.http3.as_ref();
        Self {
            edge: edge.into_inner(),
            client_address: client_address.and_then(|it| client_addresses::read(it).ok()),
            proxy_protocol: proxy_protocol.unwrap_or_default(),
            http3: of_http3.is_some_and(|it| http3::is_enabled(it).unwrap_or_default()),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PortClients {
    all: ClientSettings,
    /// Overrides by port.
    ports: BTreeMap<u16, ClientSettings>,
}

impl PortClients {
    /// Also returns a message for each invalid annotation. A port's own settings take precedence
    /// over annotations, which apply to the whole Gateway.
    pub(super) fn of(
        all: &EdgeSettings,
        ports: &BTreeMap<u16, EdgeSettings>,
        log: &AccessLogRules,
        annotations: &Labels,
        sources: &mut BTreeMap<String, String>,
    ) -> (Self, Vec<String>) {
        let mut edge = EdgeDefaults::default();
        // Validation has already rejected invalid settings.
        let _ = edge.set_all(all);
        edge.log(log);
        let wrong = edge.annotate(annotations, sources);
        let ports = ports.iter().map(|(port, own)| {
            let mut edge = edge.clone();
            let _ = edge.set_all(own);
            (*port, ClientSettings::new(edge, &within(own, all)))
        });
        let clients = Self {
            ports: ports.collect(),
            all: ClientSettings::new(edge, all),
        };
        (clients, wrong)
    }

    pub(super) fn on(&self, port: u16) -> &ClientSettings {
        self.ports.get(&port).unwrap_or(&self.all)
    }

    /// Returns `None` if all values are defaults.
    pub(crate) fn edge(&self) -> Option<Edge> {
        Some(self.all.edge).filter(|edge| *edge != Edge::default())
    }

    pub(super) fn apply(&self, ports: &mut [Port]) {
        for port in ports {
            let number = u16::try_from(port.port).unwrap_or_default();
            let ClientSettings {
                edge,
                client_address,
                proxy_protocol,
                // Adds a port.
                http3: _,
            } = self.on(number);
            if port.transport() == Transport::Tcp {
                port.set_proxy_protocol(*proxy_protocol);
            }
            if client_addresses::has_requests(port) {
                port.client_address.clone_from(client_address);
            }
            port.edge = Some(*edge).filter(|edge| *edge != self.all.edge);
        }
    }
}

/// Returns the settings that a snapshot stores in its ports.
fn within(own: &EdgeSettings, all: &EdgeSettings) -> EdgeSettings {
    let client_address = own.client_address.as_ref();
    let proxy_protocol = own.proxy_protocol.as_ref();
    EdgeSettings {
        client_address: client_address.or(all.client_address.as_ref()).cloned(),
        proxy_protocol: proxy_protocol.or(all.proxy_protocol.as_ref()).cloned(),
        http3: own.http3.as_ref().or(all.http3.as_ref()).cloned(),
        ..EdgeSettings::default()
    }
}

/// Each error starts with the name of the field in `spec`.
pub(super) fn faults(all: Option<&EdgeSettings>, ports: &[PortEdge]) -> Vec<String> {
    let wrong = all.map(|all| EdgeDefaults::default().set_all(all));
    let wrong = wrong.into_iter().flatten();
    let mut faults: Vec<String> = wrong.map(|why| format!("edge.{why}")).collect();
    let number = limits::entries("edgePorts", ports.len(), 0..=MAX_PORTS);
    faults.extend(number.err());
    let mut seen = BTreeSet::new();
    for (i, PortEdge { port, edge }) in ports.iter().take(MAX_PORTS).enumerate() {
        if names::port(*port).is_none() {
            faults.push(format!("edgePorts[{i}].port: {port}: expected 1 to 65535"));
        } else if !seen.insert(port) {
            faults.push(format!("edgePorts[{i}].port: {port} is listed twice"));
        }
        for (field, is_set) in [
            ("preset", edge.preset.is_some()),
            ("headerCase", edge.header_case.is_some()),
            ("maxResponseHeaders", edge.max_response_headers.is_some()),
            (
                "maxResponseHeadersKib",
                edge.max_response_headers_kib.is_some(),
            ),
            ("connectionBufferKib", edge.connection_buffer_kib.is_some()),
        ] {
            if is_set {
                faults.push(format!(
                    "edgePorts[{i}].edge.{field}: also affects connections to backends, which all \
                     ports share; set spec.edge.{field}"
                ));
            }
        }
        let wrong = EdgeDefaults::default().set_all(edge).into_iter();
        faults.extend(wrong.map(|why| format!("edgePorts[{i}].edge.{why}")));
    }
    faults
}
