//! Connection settings that HTTPProxies and Ingresses specify for Services.

use std::sync::Arc;

use sesame_proto::schema::tls_termination::Version;
use sesame_proto::schema::{AppProtocol, BackendTls, TrustBundle};

use super::app_protocols::is_https;
use super::endpoints::service_port;
use super::references::BackendName;
use super::settings::BackendSettings;
use super::{Backends, ResolvedRef, Traffic};
use crate::context::ResolveContext;
use sesame_kinds::api::{
    IngressBackendTls, IngressSettings, MAX_CONTOUR_CHARACTERS, NamespacedName, Service,
    ServicePort, TlsVersion,
};
use sesame_kinds::status::{Grounds, Reason};

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

    pub(crate) fn needs_tls(self) -> bool {
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
    pub(crate) layer_tls: LayerTls,
    /// Server name for an unverified Service; may be empty.
    pub(crate) unverified_sni: String,
    /// Name of the Backend for requests while the Service has no endpoints; empty for none.
    pub(crate) fallback: String,
    /// The Service makes decisions about security, so it is verified in any case.
    pub(crate) must_verify: bool,
}

/// `spec.ingress.backendTls`, for all Services of Ingresses and HTTPProxies.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LayerTls {
    min_version: Version,
    max_version: Version,
    cipher_suites: Vec<String>,
    key_exchange_groups: Vec<String>,
    allow_unverified: bool,
}

impl LayerTls {
    pub(crate) fn of(settings: Option<&IngressSettings>) -> Self {
        let Some(IngressBackendTls {
            min_version,
            max_version,
            cipher_suites,
            key_exchange_groups,
            allow_unverified,
        }) = settings.and_then(|it| it.backend_tls.as_ref())
        else {
            return Self::default();
        };
        let version = |version: &Option<TlsVersion>| match version {
            Some(TlsVersion::Tls12) => Version::Tls12,
            Some(TlsVersion::Tls13) => Version::Tls13,
            None | Some(TlsVersion::Other(_)) => Version::Unset,
        };
        Self {
            min_version: version(min_version),
            max_version: version(max_version),
            cipher_suites: cipher_suites.clone().unwrap_or_default(),
            key_exchange_groups: key_exchange_groups.clone().unwrap_or_default(),
            allow_unverified: *allow_unverified == Some(true),
        }
    }
}

impl Connection {
    fn is_unverified(&self) -> bool {
        let needs_tls = self.protocol.is_some_and(UpstreamProtocol::needs_tls);
        needs_tls && self.layer_tls.allow_unverified && !self.must_verify
    }

    /// `tls` comes from the HTTPProxy or a BackendTLSPolicy.
    pub(super) fn tls(&self, tls: Option<&BackendTls>) -> Option<BackendTls> {
        let LayerTls {
            min_version,
            max_version,
            cipher_suites,
            key_exchange_groups,
            allow_unverified: _,
        } = &self.layer_tls;
        let unverified = || {
            self.is_unverified().then(|| BackendTls {
                sni: self.unverified_sni.clone(),
                unverified: true,
                ..BackendTls::default()
            })
        };
        let tls = tls.cloned().or_else(unverified)?;
        Some(BackendTls {
            min_version: (*min_version).into(),
            max_version: (*max_version).into(),
            cipher_suites: cipher_suites.clone(),
            key_exchange_groups: key_exchange_groups.clone(),
            ..tls
        })
    }

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
            (None, Some(_)) if needs_tls && tls.is_none() && !self.is_unverified() => format!(
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
        if traffic.supports_tls_policies() {
            connection.layer_tls.clone_from(&self.layer_tls);
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
