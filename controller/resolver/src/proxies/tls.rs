//! TLS for root HTTPProxies. Each root with TLS gets its own listener, for HTTPS or for `tcpproxy`
//! connections.
//!
//! If the TLS settings are unusable, that listener closes all connections. No less specific or
//! lower-precedence listener may receive the host's requests.

use sesame_proto::schema::tls_termination::ClientMode;
use sesame_proto::schema::{self, ForwardClientCertificate};

use super::connections::secret_ref;
use super::details::{DetailCode, Details};
use super::fallback::FallbackMembers;
use super::roots::Root;
use crate::ingresses::listeners::{FoundListeners, ListenersOfGateway, OwnerName};
use crate::listeners::implicit::{self, FallbackRole, HostClients, ImplicitListeners};
use crate::listeners::{CheckedListener, MAX_VERSION, MIN_VERSION};
use sesame_kinds::api::{
    Listener, ListenerTls, NamespacedName, Protocol, ProxyClientValidation,
    ProxyForwardedCertificate, ProxyHost, ProxyTls, TlsMode,
};
use sesame_kinds::status::Reason;
use sesame_kinds::world::Kind;

pub(super) fn listeners_of_all<'w>(
    roots: &[Root<'w>],
    members: &FallbackMembers<'_, 'w>,
    port: u16,
) -> Vec<ImplicitListeners<'w>> {
    let listeners = roots.iter().filter_map(|root| {
        let tls = root.virtualhost.tls.as_ref();
        let validation = tls.and_then(|tls| tls.client_validation.as_ref());
        Some(ImplicitListeners {
            kind: Kind::HttpProxy,
            gateway: root.gateway,
            metadata: &root.proxy.metadata,
            listeners: vec![listener(root, port)?],
            clients: validation.map(clients),
            fallback: members.get(&root.name).map(|_| FallbackRole::Member),
        })
    });
    listeners.collect()
}

fn listener(root: &Root<'_>, port: u16) -> Option<Listener> {
    let at = (&root.host, port);
    let connections = root.proxy.spec.tcpproxy.is_some();
    let tls = root.virtualhost.tls.as_ref();
    match tls.filter(|_| fault(root).is_none()) {
        Some(tls) if !tls.passthrough => {
            let terminating =
                implicit::listener(at, vec![secret_ref(&tls.secret_name)], options(tls));
            Some(if connections {
                of_connections(terminating, TlsMode::Terminate)
            } else {
                terminating
            })
        }
        None if tls.is_none() && !connections => None,
        _ => {
            let without_options = std::iter::empty();
            let passing = implicit::listener(at, Vec::new(), without_options);
            Some(of_connections(passing, TlsMode::Passthrough))
        }
    }
}

/// Changes the protocol to TLS. The listener closes connections unless a route is attached.
fn of_connections(listener: Listener, mode: TlsMode) -> Listener {
    let tls = listener.tls.map(|tls| ListenerTls {
        mode: Some(mode),
        ..tls
    });
    Listener {
        protocol: Protocol::Tls,
        tls,
        ..listener
    }
}

fn clients(spec: &ProxyClientValidation) -> HostClients {
    let ProxyClientValidation {
        ca_secret,
        skip_client_cert_validation,
        forward_client_certificate,
        crl_secret,
        crl_only_verify_leaf_cert,
        optional_client_certificate,
    } = spec;
    let is_optional = *optional_client_certificate;
    let named = |text: &String| (!text.is_empty()).then(|| secret_ref(text));
    let forward = forward_client_certificate.map(|parts| {
        let ProxyForwardedCertificate {
            subject,
            cert,
            chain,
            dns,
            uri,
        } = parts;
        ForwardClientCertificate {
            subject,
            cert,
            chain,
            dns,
            uri,
        }
    });
    HostClients {
        mode: match (skip_client_cert_validation, ca_secret.is_empty()) {
            (false, _) if is_optional => ClientMode::Optional,
            (false, _) => ClientMode::Required,
            (true, false) if !is_optional => ClientMode::RequiredUnverified,
            (true, _) => ClientMode::OptionalUnverified,
        },
        authorities: named(ca_secret),
        revoked: named(crl_secret),
        leaf_only: *crl_only_verify_leaf_cert,
        forward,
    }
}

pub(super) fn is_faulty(root: &Root<'_>) -> bool {
    fault(root).is_some()
}

pub(super) fn validates_clients(root: &Root<'_>) -> bool {
    let tls = root.virtualhost.tls.as_ref();
    tls.is_some_and(|tls| tls.client_validation.is_some())
}

fn fault(root: &Root<'_>) -> Option<(DetailCode, &'static str)> {
    let connections = root.proxy.spec.tcpproxy.is_some();
    let Some(tls) = &root.virtualhost.tls else {
        let why = "Spec.TCPProxy requires that either Spec.TLS.Passthrough or Spec.TLS.SecretName \
                   be set";
        return connections.then_some((("TCPProxyError", "TLSMustBeConfigured"), why));
    };
    let ProxyTls {
        secret_name,
        minimum_protocol_version: _,
        maximum_protocol_version: _,
        passthrough,
        client_validation,
        enable_fallback_certificate,
    } = tls;
    let why = if *passthrough != secret_name.is_empty() {
        "Spec.VirtualHost.TLS: exactly one of passthrough and secretName must be set"
    } else if *passthrough && client_validation.is_some() {
        "Spec.VirtualHost.TLS: passthrough must not be set with clientValidation"
    } else if *passthrough && !connections {
        "Spec.VirtualHost.TLS: passthrough needs tcpproxy"
    } else if *enable_fallback_certificate && excludes_fallback(root.virtualhost) {
        let why = "Spec.VirtualHost.TLS: enableFallbackCertificate must not be set with passthrough, \
                   clientValidation, authorization or jwtProviders, which its clients would avoid; \
                   remove it, or the others";
        return Some((("TLSError", "TLSIncompatibleFeatures"), why));
    } else {
        let why = fault_of_clients(client_validation.as_ref()?)?;
        return Some((("TLSError", "ClientValidationInvalid"), why));
    };
    Some((("TLSError", "TLSConfigNotValid"), why))
}

fn excludes_fallback(host: &ProxyHost) -> bool {
    let tls = host.tls.as_ref();
    tls.is_some_and(|tls| tls.passthrough || tls.client_validation.is_some())
        || host.authorization.is_some()
        || !host.jwt_providers.is_empty()
}

fn fault_of_clients(spec: &ProxyClientValidation) -> Option<&'static str> {
    match (spec.ca_secret.as_str(), spec.crl_secret.as_str()) {
        ("", "") if spec.skip_client_cert_validation => None,
        ("", "") => Some("clientValidation must have caSecret or skipClientCertValidation"),
        ("", _) => Some("clientValidation.crlSecret needs caSecret"),
        _ => None,
    }
}

/// As in Contour, an invalid version means the default.
fn options(tls: &ProxyTls) -> impl Iterator<Item = (&'static str, &str)> {
    let versions = [
        (MIN_VERSION, tls.minimum_protocol_version.as_str()),
        (MAX_VERSION, tls.maximum_protocol_version.as_str()),
    ];
    versions
        .into_iter()
        .filter(|(_, version)| is_version(version))
}

/// Returns true if the host supports fewer TLS versions than by default.
pub(super) fn narrows_versions(tls: &ProxyTls) -> bool {
    tls.minimum_protocol_version == "1.3" || tls.maximum_protocol_version == "1.2"
}

fn is_version(text: &str) -> bool {
    ["1.2", "1.3"].contains(&text)
}

pub(super) fn report(
    root: &Root<'_>,
    (listeners, https): (&ListenersOfGateway<'_, '_>, &FoundListeners),
    details: &mut Details,
) {
    let held = "; the host is not served over HTTPS";
    if let Some(tls) = &root.virtualhost.tls {
        for why in ignored(tls, root.proxy.spec.tcpproxy.is_some()) {
            details.warn(&root.name, ("TLSError", "IgnoredField"), why);
        }
    }
    if let Some((code, why)) = fault(root) {
        details.error(&root.name, code, format!("{why}{held}"));
        return;
    }
    let owner = OwnerName::of(Kind::HttpProxy, &root.proxy.metadata);
    if let Some(listener) = listeners.added(&root.host, owner) {
        let all = &listeners.gateway().listeners;
        let mut allowing = https.iter().filter_map(|(place, _)| all.get(*place));
        let is_allowed = allowing.any(|it| it.hostname.as_ref() == Some(&root.host));
        report_listener(&root.name, (listener, is_allowed), held, details);
    }
}

fn ignored(tls: &ProxyTls, connections: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    for text in [&tls.minimum_protocol_version, &tls.maximum_protocol_version] {
        if tls.passthrough && !text.is_empty() {
            warnings.push("TLS versions have no effect with passthrough".to_owned());
        } else if !text.is_empty() && !is_version(text) {
            warnings.push(format!(
                "TLS version {text:?} has no effect; expected \"1.2\" or \"1.3\""
            ));
        }
    }
    let clients = tls.client_validation.as_ref();
    if connections && clients.is_some_and(|it| it.forward_client_certificate.is_some()) {
        let why = "forwardClientCertificate has no effect with tcpproxy";
        warnings.push(why.to_owned());
    }
    warnings
}

fn report_listener(
    name: &NamespacedName,
    (listener, is_allowed): (&CheckedListener<'_>, bool),
    held: &str,
    details: &mut Details,
) {
    let connections = listener.protocol == Some(schema::Protocol::Tls);
    if let Some((Reason::OtherRoute, why)) = &listener.conflict {
        details.warn(name, ("TLSError", "Overridden"), format!("{why}{held}"));
    } else if listener.conflict.is_some() && (listener.clients.is_some() || connections) {
        let (code, field) = if connections {
            (("TCPProxyError", "Overridden"), "tcpproxy")
        } else {
            (("TLSError", "ClientValidationInvalid"), "clientValidation")
        };
        let why = "the Gateway or a ListenerSet has a listener for this host";
        details.error(name, code, format!("{field}: {why}{held}"));
    } else if listener.conflict.is_some() && !is_allowed {
        let why = format!(
            "no HTTPS listener for this host allows namespace {:?}",
            name.namespace
        );
        let code = ("RouteError", "NotAllowedByListener");
        details.error(name, code, format!("{why}{held}"));
    } else if listener.conflict.is_some() {
        let why = "the Gateway or a ListenerSet has a listener for this host; clients get its \
                   certificate";
        details.warn(name, ("TLSError", "Overridden"), why);
    } else if let Some((reason, why)) = listener.accepted.fault() {
        let reason = match reason {
            Reason::NoValidCaCertificate => "ClientValidationInvalid",
            Reason::RefNotPermitted => "DelegationNotPermitted",
            _ => "TLSConfigNotValid",
        };
        details.error(name, ("TLSError", reason), format!("{why}{held}"));
    }
    if listener.conflict.is_none() {
        for why in &listener.advice {
            details.warn(name, ("TLSError", "CertificateFlawed"), why);
        }
    }
    if let Some((reason, why)) = listener.resolved.fault() {
        let reason = match reason {
            Reason::RefNotPermitted => "DelegationNotPermitted",
            _ => "SecretNotValid",
        };
        let held = if listener.lacks_certificate { held } else { "" };
        details.error(name, ("TLSError", reason), format!("{why}{held}"));
    }
}
