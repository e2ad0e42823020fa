//! HTTPS listeners that HTTPProxies and Ingresses add to a Gateway, one for each TLS host.

use sesame_proto::schema::ForwardClientCertificate;
use sesame_proto::schema::tls_termination::ClientMode;

use super::listener::ListenerOwner;
use crate::api::{Listener, ListenerTls, Metadata, ObjectRef, Protocol};
use crate::resolve::syntax::hostnames::Hostname;
use crate::world::Kind;

const HTTPS: i32 = 443;

/// The listeners that an HTTPProxy or Ingress adds to a Gateway.
#[derive(Clone, Debug)]
pub struct ImplicitListeners<'w> {
    /// `HTTPProxy` or `Ingress`.
    pub kind: Kind,
    /// Namespace and name of the Gateway.
    pub gateway: (&'w str, &'w str),
    /// Metadata of the HTTPProxy or Ingress.
    pub metadata: &'w Metadata,
    /// The listeners.
    pub listeners: Vec<Listener>,
    /// Client certificate validation for all listeners.
    pub clients: Option<HostClients>,
}

/// Client certificate validation for a host.
#[derive(Clone, Debug)]
pub struct HostClients {
    /// Whether clients need a certificate, and whether it must be valid.
    pub mode: ClientMode,
    /// Secret with the CA certificates.
    pub authorities: Option<ObjectRef>,
    /// Secret with the revocation lists.
    pub revoked: Option<ObjectRef>,
    /// Check only the leaf certificate against the revocation lists.
    pub leaf_only: bool,
    /// Client certificate details that backends receive.
    pub forward: Option<ForwardClientCertificate>,
}

/// The name does not depend on the object, so connections survive if another object takes over the
/// host with the same certificate.
pub(crate) fn provenance(gateway: &ListenerOwner<'_>, name: &str) -> String {
    format!(
        "TLSHost/{}/{}/listeners/{name}",
        gateway.namespace, gateway.name
    )
}

/// The listener's name does not depend on the object's other hosts.
pub(crate) fn listener<'o>(
    host: &Hostname,
    certificate_refs: Vec<ObjectRef>,
    options: impl Iterator<Item = (&'static str, &'o str)>,
) -> Listener {
    let name = match host.as_str().strip_prefix("*.") {
        Some(rest) => format!("any.{rest}"),
        None if host.as_str().is_empty() => "any".to_owned(),
        None => host.as_str().to_owned(),
    };
    Listener {
        name,
        hostname: Some(host.as_str().to_owned()),
        port: HTTPS,
        protocol: Protocol::Https,
        tls: Some(ListenerTls {
            mode: None,
            certificate_refs,
            options: options
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        }),
        allowed_routes: None,
        filters: None,
    }
}
