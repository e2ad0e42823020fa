//! Builds the Backends of a snapshot, and chooses their protocols and names.

use sesame_proto::digest;
use sesame_proto::schema::{AppProtocol, Backend, BackendTls};

use super::app_protocols::{http_protocol, is_https};
use super::connections::Connection;
use super::settings::BackendSettings;
use super::traffic::Traffic;
use crate::api::{Metadata, NamespacedName, ServicePort};
use crate::resolve::backends::endpoints;
use crate::status::{Grounds, Reason};

/// Builds the Backend that carries this kind of traffic to a port. The Backend has the port's name
/// if it uses the port's own HTTP protocol, no TLS and default settings. Each other combination of
/// protocol, TLS and settings becomes a separate Backend.
pub(super) fn backend(
    service: &Metadata,
    port: &ServicePort,
    traffic: Traffic,
    tls: Option<&BackendTls>,
    connection: &Connection,
    policy: Option<&BackendSettings>,
    unfit: &mut Vec<String>,
) -> Result<Backend, Grounds> {
    let key = &service.key();
    connection.check(key, port, tls)?;
    let number = port.port;
    let own = http_protocol(port.app_protocol.as_deref(), tls.is_some());
    let http = connection.protocol.map_or(own, |asked| Some(asked.http()));
    let protocol = protocol(key, port, traffic, http, tls.is_some())?;
    let name = endpoints::set_name(key, number, "TCP");
    let mut backend = Backend {
        name: String::new(),
        endpoints: endpoints::set_name(key, number, traffic.transport()),
        protocol: protocol.into(),
        tls: tls.cloned().map(Box::new),
        ..Backend::default()
    };
    let settings = match policy {
        Some(policy) => connection.settings.or(policy),
        None => connection.settings.clone(),
    };
    let settings = settings.or_annotated(service);
    let is_plain = !settings.apply(traffic, &mut backend, unfit) && tls.is_none();
    backend.name = if Some(protocol) == own && is_plain {
        name
    } else {
        distinct_name(&name, &backend)
    };
    Ok(backend)
}

/// Chooses the protocol that carries this kind of traffic to a port. `http` is the protocol for
/// HTTP requests to the port.
fn protocol(
    key: &NamespacedName,
    port: &ServicePort,
    traffic: Traffic,
    http: Option<AppProtocol>,
    tls: bool,
) -> Result<AppProtocol, Grounds> {
    let app_protocol = port.app_protocol.as_deref();
    let expected = match app_protocol {
        Some("kubernetes.io/wss") => "kubernetes.io/ws, or a BackendTLSPolicy for the Service",
        Some(name) if is_https(name) => "http, or a BackendTLSPolicy for the Service",
        _ => "http, kubernetes.io/h2c or kubernetes.io/ws",
    };
    let asks_for_tls =
        app_protocol.is_some_and(|name| is_https(name) || name == "kubernetes.io/wss");
    let (protocol, expected) = match (traffic, http) {
        // Never forward decrypted traffic as plaintext to a backend that expects TLS.
        (Traffic::Terminated, _) if asks_for_tls && !tls => {
            (None, "a BackendTLSPolicy for the Service")
        }
        (Traffic::Connections | Traffic::Bytes | Traffic::Terminated, _) => {
            (Some(AppProtocol::TcpBytes), "")
        }
        (Traffic::Datagrams, _) => (Some(AppProtocol::UdpDatagrams), ""),
        (Traffic::Http, http) => (http, expected),
        // gRPC requires HTTP/2. A port with the default HTTP protocol is assumed to support HTTP/2
        // for gRPC.
        (Traffic::Grpc, Some(AppProtocol::Http1 | AppProtocol::Http2)) => {
            (Some(AppProtocol::Http2), "")
        }
        (Traffic::Grpc, _) if app_protocol.is_some_and(is_https) => {
            (None, "grpc, or a BackendTLSPolicy for the Service")
        }
        (Traffic::Grpc, _) => (None, "grpc or kubernetes.io/h2c"),
    };
    protocol.ok_or_else(|| {
        let message = format!(
            "port {} of Service {key} has appProtocol {:?}; expected {expected}",
            port.port,
            app_protocol.unwrap_or_default()
        );
        (Reason::UnsupportedProtocol, message)
    })
}

/// Returns the name of a Backend whose contents differ from the port's default Backend.
fn distinct_name(port: &str, backend: &Backend) -> String {
    format!("{port}/{}", digest::backend(backend))
}

/// How a Gateway connects to a Backend that has no TLS policy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MeshTransport<'a> {
    /// The Backend's own protocol, without TLS.
    Plain,
    /// TLS, as the Gateway's mesh requires.
    Mesh(&'a BackendTls),
    /// No transport: the Gateway's mesh settings are unusable, so the traffic is rejected.
    Refused,
}

/// Returns a copy of the Backend with the TLS settings of this Gateway. A Backend with TLS gets the
/// Gateway's client key. A TLS policy takes precedence over `transport`.
pub(crate) fn reached_by(
    backend: &Backend,
    client_key: Option<&str>,
    transport: MeshTransport<'_>,
) -> Backend {
    let mut reached = backend.clone();
    match (&mut reached.tls, transport) {
        (None, MeshTransport::Plain) => return reached,
        (Some(tls), _) => match client_key {
            Some(key) => key.clone_into(&mut tls.client_key),
            None => return reached,
        },
        (None, MeshTransport::Mesh(tls)) if backend.protocol() != AppProtocol::UdpDatagrams => {
            reached.tls = Some(Box::new(tls.clone()));
        }
        // TLS cannot carry datagrams. A Backend without endpoints receives no traffic.
        (None, MeshTransport::Mesh(_) | MeshTransport::Refused) => reached.endpoints.clear(),
    }
    // `backend.endpoints` is the name of the port or XBackend. `reached.endpoints` may be empty
    // here.
    reached.name = distinct_name(&backend.endpoints, &reached);
    reached
}
