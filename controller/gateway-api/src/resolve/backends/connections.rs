//! Connection settings that HTTPProxies and Ingresses specify for Services.

use std::sync::Arc;

use sesame_proto::schema::{AppProtocol, BackendTls, TrustBundle};

use super::app_protocols::is_https;
use super::endpoints::service_port;
use super::references::BackendName;
use super::settings::BackendSettings;
use super::{Backends, ResolvedRef, Traffic};
use crate::api::{MAX_CONTOUR_CHARACTERS, NamespacedName, Service, ServicePort};
use crate::resolve::context::ResolveContext;
use crate::status::{Grounds, Reason};

/// Upstream protocol in Contour's terms. Takes precedence over `appProtocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamProtocol {
    /// Without TLS.
    Http1,
    H2c,
    H2,
    /// HTTP/1.1 or raw bytes over TLS.
    Tls,
}

impl UpstreamProtocol {
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut all = [Self::H2c, Self::H2, Self::Tls].into_iter();
        all.find(|protocol| protocol.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::H2c => "h2c",
            Self::H2 => "h2",
            Self::Tls => "tls",
        }
    }

    fn annotation(self) -> Option<&'static str> {
        match self {
            Self::Http1 => None,
            Self::H2c => Some("projectcontour.io/upstream-protocol.h2c"),
            Self::H2 => Some("projectcontour.io/upstream-protocol.h2"),
            Self::Tls => Some("projectcontour.io/upstream-protocol.tls"),
        }
    }

    /// Reads Contour's annotations for a port without `appProtocol`. Protocols with TLS take
    /// precedence.
    fn annotated(service: &Service, port: &ServicePort) -> Option<Self> {
        let app_protocol = port.app_protocol.as_deref().unwrap_or_default();
        let is_meant =
            |name: &str| name == port.port.to_string() || !name.is_empty() && *name == *port.name;
        let lists = |protocol: &Self| {
            let annotations = &service.metadata.annotations;
            let list = protocol.annotation().and_then(|it| annotations.get(it));
            // Lists of this length were truncated, so assume that the missing part names the port.
            list.is_some_and(|list| {
                list.len() >= MAX_CONTOUR_CHARACTERS || list.split(',').map(str::trim).any(is_meant)
            })
        };
        let mut all = [Self::Tls, Self::H2, Self::H2c].into_iter();
        all.find(lists).filter(|_| app_protocol.is_empty())
    }

    pub(super) fn http(self) -> AppProtocol {
        match self {
            Self::H2c | Self::H2 => AppProtocol::Http2,
            Self::Http1 | Self::Tls => AppProtocol::Http1,
        }
    }

    fn needs_tls(self) -> bool {
        match self {
            Self::H2 | Self::Tls => true,
            Self::Http1 | Self::H2c => false,
        }
    }
}

/// Overrides any BackendTLSPolicy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnTls {
    pub(crate) tls: BackendTls,
    pub(crate) bundle: Arc<TrustBundle>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Connection {
    pub(crate) protocol: Option<UpstreamProtocol>,
    pub(crate) own_tls: Option<OwnTls>,
    pub(crate) settings: BackendSettings,
}

impl Connection {
    /// Fails if `protocol` requires TLS that is not configured, or if `own_tls` would have no
    /// effect.
    pub(super) fn check(
        &self,
        key: &NamespacedName,
        port: &ServicePort,
        tls: Option<&BackendTls>,
    ) -> Result<(), Grounds> {
        let app_protocol = port.app_protocol.as_deref().unwrap_or_default();
        let number = port.port;
        let needs_tls = match self.protocol {
            Some(protocol) => protocol.needs_tls(),
            None => is_https(app_protocol) || app_protocol == "kubernetes.io/wss",
        };
        let why = match (&self.own_tls, self.protocol) {
            (Some(_), _) if !needs_tls => format!(
                "validation has no effect without TLS to port {number} of Service {key}; set \
                 protocol tls or h2"
            ),
            (None, Some(_)) if needs_tls && tls.is_none() => format!(
                "TLS to port {number} of Service {key} could not be verified; set a \
                 BackendTLSPolicy for the Service, or validation of its entry in an HTTPProxy"
            ),
            _ => return Ok(()),
        };
        Err((Reason::NoValidCaCertificate, why))
    }
}

impl<'w> Backends<'w> {
    /// Contour's protocol annotations apply unless `connection` sets a protocol.
    pub(crate) fn of_service(
        &mut self,
        service: BackendName<'w>,
        port: i32,
        traffic: Traffic,
        mut connection: Connection,
        cx: &ResolveContext<'w, '_>,
    ) -> ResolvedRef<'w> {
        // With TLS passthrough, the client itself negotiates the protocol.
        if traffic.supports_tls_policies()
            && connection.protocol.is_none()
            && let Some(object) = cx.world.services.get(service.0, service.1)
            && let Some(port) = service_port(&object.spec, port, traffic.transport())
        {
            connection.protocol = UpstreamProtocol::annotated(object, port);
        }
        let supports_tls_policies = traffic.supports_tls_policies() && connection.own_tls.is_none();
        let policed = self.policed(service, supports_tls_policies);
        let target = if connection == Connection::default() {
            self.target(service, Some(port), traffic, cx)
        } else {
            let found = self.find(service, port, traffic, &connection, cx);
            self.named_target(found)
        };
        ResolvedRef { policed, target }
    }
}
