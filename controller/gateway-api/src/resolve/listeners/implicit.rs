//! HTTPS listeners that HTTPProxies and Ingresses add to a Gateway, one per TLS host.

use sesame_proto::schema::ForwardClientCertificate;
use sesame_proto::schema::tls_termination::ClientMode;

use super::listener::ListenerOwner;
use crate::api::{Listener, ListenerTls, Metadata, ObjectRef, Protocol};
use crate::resolve::syntax::hostnames::Hostname;
use crate::world::Kind;

/// Port of implicit listeners.
const HTTPS: i32 = 443;

/// The HTTPS listeners that an HTTPProxy or Ingress adds to the Gateway of its class.
#[derive(Clone, Debug)]
pub struct ImplicitListeners<'w> {
    /// `HTTPProxy` or `Ingress`.
    pub kind: Kind,
    /// Namespace and name of the Gateway.
    pub gateway: (&'w str, &'w str),
    /// Metadata of the object.
    pub metadata: &'w Metadata,
    /// The listeners.
    pub listeners: Vec<Listener>,
    /// The client certificate validation on these listeners.
    pub clients: Option<HostClients>,
}

/// The client certificate validation for a host.
#[derive(Clone, Debug)]
pub struct HostClients {
    /// Determines whether clients need a certificate, and whether it must be valid.
    pub mode: ClientMode,
    /// The Secret with the CA certificates for clients.
    pub authorities: Option<ObjectRef>,
    /// The Secret with revocation lists issued by these authorities.
    pub revoked: Option<ObjectRef>,
    /// True if only the leaf certificate is checked against the revocation lists.
    pub leaf_only: bool,
    /// The details of the client certificate that are forwarded to backends.
    pub forward: Option<ForwardClientCertificate>,
}

/// Returns an implicit listener's name in the snapshot. The name does not depend on which object
/// defines the host. Connections therefore survive when another object takes over the host with the
/// same certificate.
pub(crate) fn provenance(gateway: &ListenerOwner<'_>, name: &str) -> String {
    format!(
        "TLSHost/{}/{}/listeners/{name}",
        gateway.namespace, gateway.name
    )
}

/// Builds the HTTPS listener for a host. Its name does not depend on other hosts.
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
