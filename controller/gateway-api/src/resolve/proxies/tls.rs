//! TLS of roots: an HTTPS listener for each host.
//!
//! A host whose TLS cannot be served as written has a listener without a certificate. So no wider
//! listener gets its requests: it is held.

use super::details::Details;
use super::roots::Root;
use crate::api::{NamespacedName, ObjectRef, ProxyTls};
use crate::resolve::ingresses::listeners::{ListenersOfGateway, OwnerName};
use crate::resolve::listeners::implicit::{self, ImplicitListeners};
use crate::resolve::listeners::{CheckedListener, MAX_VERSION, MIN_VERSION};
use crate::status::Reason;
use crate::world::Kind;

/// Returns the listeners of all roots with TLS.
pub(crate) fn listeners_of_all<'w>(roots: &[Root<'w>]) -> Vec<ImplicitListeners<'w>> {
    let listeners = roots.iter().filter_map(|root| {
        let tls = root.virtualhost.tls.as_ref()?;
        let certificates = fault(root, tls).is_none().then(|| certificate(tls));
        let certificates = certificates.into_iter().collect();
        Some(ImplicitListeners {
            kind: Kind::HttpProxy,
            gateway: root.gateway,
            metadata: &root.proxy.metadata,
            listeners: vec![implicit::listener(&root.host, certificates, options(tls))],
        })
    });
    listeners.collect()
}

/// Returns true if TLS cannot be served as written.
pub(super) fn is_faulty(root: &Root<'_>) -> bool {
    let tls = root.virtualhost.tls.as_ref();
    tls.is_some_and(|tls| fault(root, tls).is_some())
}

/// Returns the reason why TLS cannot be served as written.
fn fault(root: &Root<'_>, tls: &ProxyTls) -> Option<(&'static str, &'static str)> {
    let ProxyTls {
        secret_name,
        minimum_protocol_version: _,
        maximum_protocol_version: _,
        passthrough,
        client_validation,
        // Others get the host's certificate, too; that opens nothing.
        enable_fallback_certificate: _,
    } = tls;
    if *passthrough != secret_name.is_empty() {
        let why = "Spec.VirtualHost.TLS: exactly one of passthrough and secretName must be set";
        return Some(("TLSConfigNotValid", why));
    }
    if *passthrough || root.proxy.spec.tcpproxy.is_some() {
        return Some((
            "NotSupported",
            "tcpproxy and passthrough are not supported; use a TLSRoute",
        ));
    }
    client_validation.is_some().then_some((
        "ClientValidationInvalid",
        "clientValidation is not supported; use spec.tls.frontend of the Gateway",
    ))
}

/// Returns the reference to the Secret: `name`, or `namespace/name`.
fn certificate(tls: &ProxyTls) -> ObjectRef {
    let (namespace, name) = match tls.secret_name.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, tls.secret_name.as_str()),
    };
    ObjectRef {
        name: name.to_owned(),
        namespace,
        ..ObjectRef::default()
    }
}

/// Returns the versions of TLS. Like Contour, another text is the default.
fn options(tls: &ProxyTls) -> impl Iterator<Item = (&'static str, &str)> {
    let versions = [
        (MIN_VERSION, tls.minimum_protocol_version.as_str()),
        (MAX_VERSION, tls.maximum_protocol_version.as_str()),
    ];
    versions
        .into_iter()
        .filter(|(_, version)| is_version(version))
}

fn is_version(text: &str) -> bool {
    ["1.2", "1.3"].contains(&text)
}

/// Adds what becomes of the TLS of a root.
pub(super) fn tell(root: &Root<'_>, listeners: &ListenersOfGateway<'_, '_>, details: &mut Details) {
    let Some(tls) = &root.virtualhost.tls else {
        return;
    };
    let held = "; the host is not served over HTTPS";
    for text in [&tls.minimum_protocol_version, &tls.maximum_protocol_version] {
        if !text.is_empty() && !is_version(text) {
            let why = format!("TLS version {text:?} has no effect; expected \"1.2\" or \"1.3\"");
            details.warn(&root.name, ("TLSError", "IgnoredField"), why);
        }
    }
    if tls.enable_fallback_certificate {
        let why = "enableFallbackCertificate has no effect: it is not supported";
        details.warn(&root.name, ("TLSError", "IgnoredField"), why);
    }
    if let Some((reason, why)) = fault(root, tls) {
        details.error(&root.name, ("TLSError", reason), format!("{why}{held}"));
        return;
    }
    let owner = OwnerName::of(Kind::HttpProxy, &root.proxy.metadata);
    if let Some(listener) = listeners.added(&root.host, owner) {
        tell_listener(&root.name, listener, held, details);
    }
}

fn tell_listener(
    name: &NamespacedName,
    listener: &CheckedListener<'_>,
    held: &str,
    details: &mut Details,
) {
    if listener.conflict.is_some() {
        let why = "the Gateway or a ListenerSet has a listener for this host; clients get its \
                   certificate";
        details.warn(name, ("TLSError", "Overridden"), why);
    } else if let Some((_, why)) = listener.accepted.fault() {
        details.error(
            name,
            ("TLSError", "TLSConfigNotValid"),
            format!("{why}{held}"),
        );
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
