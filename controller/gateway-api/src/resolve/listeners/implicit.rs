//! HTTPS listeners that HTTPProxies and Ingresses add to a Gateway, one for each TLS host.

use sesame_proto::schema::ForwardClientCertificate;
use sesame_proto::schema::tls_termination::ClientMode;

use super::listener::ListenerOwner;
use crate::api::{Listener, ListenerTls, Metadata, ObjectRef, Protocol};
use crate::resolve::syntax::hostnames::Hostname;
use crate::world::Kind;

/// Port of implicit listeners.
const HTTPS: i32 = 443;

/// The listeners that an HTTPProxy or Ingress adds to the Gateway of its class.
#[derive(Clone, Debug)]
pub struct ImplicitListeners<'w> {
    /// `HTTPProxy` or `Ingress`.
    pub kind: Kind,
    /// Namespace and name of the Gateway to which the listeners are added.
    pub gateway: (&'w str, &'w str),
    /// Metadata of the HTTPProxy or Ingress.
    pub metadata: &'w Metadata,
    /// The listeners.
    pub listeners: Vec<Listener>,
    /// Client certificate validation on all these listeners, if configured.
    pub clients: Option<HostClients>,
}

/// Client certificate validation for a host.
#[derive(Clone, Debug)]
pub struct HostClients {
    /// Determines whether clients need a certificate, and whether it must be valid.
    pub mode: ClientMode,
    /// The Secret with the CA certificates for clients.
    pub authorities: Option<ObjectRef>,
    /// The Secret with the revocation lists that these CAs issued.
    pub revoked: Option<ObjectRef>,
    /// True if only the client's own certificate is checked against the revocation lists, not its
    /// issuers' certificates.
    pub leaf_only: bool,
    /// Which details of the client certificate are forwarded to backends.
    pub forward: Option<ForwardClientCertificate>,
}

/// Returns the name of an implicit listener in the snapshot. The name does not depend on the object
/// that defines the host. Connections therefore survive if another object takes over the host and
/// uses the same certificate.
pub(crate) fn provenance(gateway: &ListenerOwner<'_>, name: &str) -> String {
    format!(
        "TLSHost/{}/{}/listeners/{name}",
        gateway.namespace, gateway.name
    )
}

/// Builds the HTTPS listener for a host. The listener's name does not depend on the object's other
/// hosts.
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
