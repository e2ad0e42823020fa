//! HTTPS listeners that HTTPProxies and Ingresses add to a Gateway, one for each TLS host.

use std::cmp::Ordering;

use sesame_proto::schema::ForwardClientCertificate;
use sesame_proto::schema::tls_termination::ClientMode;

use super::listener::ListenerOwner;
use super::tls_options::{GROUPS, MAX_VERSION, MIN_VERSION, SUITES};
use crate::syntax::hostnames::Hostname;
use sesame_kinds::api::{
    IngressTlsSettings, Listener, ListenerTls, Metadata, ObjectRef, Protocol, TlsMode, TlsVersion,
};
use sesame_kinds::world::Kind;

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
    /// Which part the listeners have in serving clients without a known server name.
    pub fallback: Option<FallbackRole>,
}

/// How a listener serves clients that send no server name, or an unknown one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallbackRole {
    /// The Gateway's fallback listener serves a copy of the listener's own hostname.
    Member,
    /// This is the fallback listener, which has no hostname and no routes of its own.
    Listener,
}

/// Client certificate validation for a host.
#[derive(Clone, Debug, PartialEq)]
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
    (host, port): (&Hostname, u16),
    certificate_refs: Vec<ObjectRef>,
    options: impl Iterator<Item = (&'static str, &'o str)>,
) -> Listener {
    Listener {
        name: name(host),
        hostname: Some(host.as_str().to_owned()),
        port: port.into(),
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

/// Applies `spec.ingress.tls`. Of both TLS versions, the stricter one applies.
pub(crate) fn restrict(listener: &mut Listener, settings: &IngressTlsSettings) {
    let IngressTlsSettings {
        min_version,
        max_version,
        cipher_suites,
        key_exchange_groups,
    } = settings;
    let tls = listener.tls.as_mut();
    let Some(tls) = tls.filter(|it| it.mode != Some(TlsMode::Passthrough)) else {
        return;
    };
    let mut choose = |option: &str, version: Option<&TlsVersion>, choice: Ordering| {
        let Some(version) = version else { return };
        let own = tls.options.entry(option.to_owned()).or_default();
        // The valid versions compare as text.
        if own.is_empty() || version.as_str().cmp(own) == choice {
            version.as_str().clone_into(own);
        }
    };
    choose(MIN_VERSION, min_version.as_ref(), Ordering::Greater);
    choose(MAX_VERSION, max_version.as_ref(), Ordering::Less);
    // TLS 1.3 has no choice of cipher suites.
    let is_newest = tls.options.get(MIN_VERSION).is_some_and(|it| it == "1.3");
    if let Some(suites) = cipher_suites.as_ref().filter(|_| !is_newest) {
        tls.options.insert(SUITES.to_owned(), suites.join(","));
    }
    if let Some(groups) = key_exchange_groups {
        tls.options.insert(GROUPS.to_owned(), groups.join(","));
    }
}

/// Different hosts have different names, because names identify route tables: `*.test` becomes
/// `any.test`, `any.test` becomes `anyx.test`, and so on.
fn name(host: &Hostname) -> String {
    let text = host.as_str();
    if text.is_empty() {
        return "any".to_owned();
    }
    if let Some(rest) = text.strip_prefix("*.") {
        return format!("any.{rest}");
    }
    let after_any = text.strip_prefix("any");
    match after_any.map(|rest| rest.trim_start_matches('x')) {
        Some(rest) if rest.is_empty() || rest.starts_with('.') => text.replacen("any", "anyx", 1),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_hosts_have_different_names() {
        for (host, expected) in [
            ("", "any"),
            ("any", "anyx"),
            ("anyx", "anyxx"),
            ("*.a.test", "any.a.test"),
            ("any.a.test", "anyx.a.test"),
            ("anyx.a.test", "anyxx.a.test"),
            ("*.any.test", "any.any.test"),
            ("anyone.test", "anyone.test"),
            ("a.test", "a.test"),
        ] {
            assert_eq!(name(&Hostname::parse(host).expect("valid")), expected);
        }
    }
}
