use sesame_proto::digest;
use sesame_proto::schema::{AppProtocol, Backend, BackendTls};

use super::app_protocols::{http_protocol, is_https};
use super::connections::Connection;
use super::settings::BackendSettings;
use super::traffic::Traffic;
use crate::backends::endpoints;
use sesame_kinds::api::{NamespacedName, Service, ServicePort};
use sesame_kinds::status::{Grounds, Reason};

/// The Backend has the port's name if it uses the port's own HTTP protocol, no TLS and default
/// settings. Any other combination becomes a separate Backend.
pub(super) fn backend(
    service: &Service,
    port: &ServicePort,
    traffic: Traffic,
    tls: Option<&BackendTls>,
    connection: &Connection,
    policy: Option<&BackendSettings>,
    unfit: &mut Vec<String>,
) -> Result<Backend, Grounds> {
    let key = &service.metadata.key();
    connection.check(key, port, tls)?;
    let tls = connection.tls(tls);
    let number = port.port;
    let own = http_protocol(port.app_protocol.as_deref(), tls.is_some());
    let http = connection.protocol.map_or(own, |asked| Some(asked.http()));
    let protocol = protocol(key, port, traffic, http, tls.is_some())?;
    let name = endpoints::set_name(key, number, "TCP");
    let mut backend = Backend {
        name: String::new(),
        endpoints: endpoints::set_name(key, number, traffic.transport()),
        protocol: protocol.into(),
        tls: tls.map(Box::new),
        fallback: connection.fallback.clone(),
        ..Backend::default()
    };
    let settings = match policy {
        Some(policy) => connection.settings.or(policy),
        None => connection.settings.clone(),
    };
    let settings = settings.or_of_service(service);
    let is_plain = !settings.apply(traffic, &mut backend, unfit)
        && backend.tls.is_none()
        && backend.fallback.is_empty();
    backend.name = if Some(protocol) == own && is_plain {
        name
    } else {
        distinct_name(&name, &backend)
    };
    Ok(backend)
}

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
        // gRPC requires HTTP/2. Ports with the default protocol are assumed to support HTTP/2.
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

/// Names a Backend that differs from the port's default Backend.
pub(super) fn distinct_name(port: &str, backend: &Backend) -> String {
    format!("{port}/{}", digest::backend(backend))
}

/// Transport to a Backend without a TLS policy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MeshTransport<'a> {
    Plain,
    /// TLS, as the Gateway's mesh requires.
    Mesh(&'a BackendTls),
    /// The Gateway's mesh settings are unusable, so reject the traffic.
    Refused,
}

/// Applies this Gateway's TLS settings. A TLS policy takes precedence over `transport`.
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
    // Use `backend.endpoints`, the name of the port or XBackend, because `reached.endpoints` may be
    // empty.
    reached.name = distinct_name(&backend.endpoints, &reached);
    reached
}
