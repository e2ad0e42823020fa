//! The fallback certificate: clients that send no server name, or an unknown one, reach the root
//! HTTPProxies that opt in.
//!
//! All these roots of a Gateway share one listener without hostname, which serves a copy of each
//! root's virtual host. A root that protects more than its virtual host can is never admitted.

use std::collections::BTreeMap;

use super::details::{DetailCode, Details};
use super::roots::{FoundProxies, Root};
use super::tls;
use crate::context::grants::{Grants, Referent, Referrer};
use crate::ingresses::listeners::{ListenersOfGateway, OwnerName};
use crate::listeners::implicit::{self, FallbackRole, ImplicitListeners};
use crate::syntax::hostnames::Hostname;
use sesame_kinds::api::{IngressSettings, NamespacedName, ObjectRef, SecretRef};
use sesame_kinds::status::Reason;
use sesame_kinds::world::{Kind, World};

/// Admitted roots, with the Secret that each refers to.
pub(super) type FallbackMembers<'f, 'w> = BTreeMap<&'f NamespacedName, &'w SecretRef>;

pub(super) fn members<'f, 'w>(
    world: &'w World,
    found: &'f FoundProxies<'w>,
) -> FallbackMembers<'f, 'w> {
    let opting = found.roots.iter().filter(|root| opts_in(root));
    let mut grants = None;
    let admitted = opting.filter_map(|root| {
        let grants = grants.get_or_insert_with(|| Grants::new(world));
        let secret = admit(root, found.settings, grants).ok()?;
        Some((&root.name, secret))
    });
    admitted.collect()
}

/// Returns one listener for each Gateway. Its owner is the oldest member, whose reference to the
/// Secret is permitted.
pub(super) fn listeners_of_all<'w>(
    roots: &[Root<'w>],
    members: &FallbackMembers<'_, 'w>,
    port: u16,
) -> Vec<ImplicitListeners<'w>> {
    let mut by_gateway = BTreeMap::new();
    for root in roots {
        let Some(SecretRef { namespace, name }) = members.get(&root.name) else {
            continue;
        };
        by_gateway.entry(root.gateway).or_insert_with(|| {
            let certificate = ObjectRef {
                name: name.clone(),
                namespace: Some(namespace.clone()),
                ..ObjectRef::default()
            };
            let (host, options) = (Hostname::any(), std::iter::empty());
            ImplicitListeners {
                kind: Kind::HttpProxy,
                gateway: root.gateway,
                metadata: &root.proxy.metadata,
                listeners: vec![implicit::listener(
                    (&host, port),
                    vec![certificate],
                    options,
                )],
                clients: None,
                fallback: Some(FallbackRole::Listener),
            }
        });
    }
    by_gateway.into_values().collect()
}

pub(super) fn report(
    root: &Root<'_>,
    listeners: &ListenersOfGateway<'_, '_>,
    settings: Option<&IngressSettings>,
    grants: &Grants<'_>,
    details: &mut Details,
) {
    if !opts_in(root) {
        return;
    }
    let admitted = admit(root, settings, grants);
    let checked = admitted.and_then(|_| check_listeners(root, listeners));
    let Err(Fault {
        warning,
        reason,
        why,
    }) = checked
    else {
        return;
    };
    let code: DetailCode = ("TLSError", reason);
    let why = format!("enableFallbackCertificate: {why}");
    if warning {
        details.warn(&root.name, code, why);
    } else {
        details.error(&root.name, code, why);
    }
}

/// Errors are also errors in Contour.
struct Fault {
    warning: bool,
    reason: &'static str,
    why: String,
}

impl Fault {
    fn error(reason: &'static str, why: &str) -> Self {
        let why = format!("{why}; only clients that send the host's server name reach it");
        Self {
            warning: false,
            reason,
            why,
        }
    }

    fn warning(reason: &'static str, why: &str) -> Self {
        Self {
            warning: true,
            ..Self::error(reason, why)
        }
    }
}

/// Returns false for a root with errors that prevent serving its TLS host, which are reported
/// elsewhere.
fn opts_in(root: &Root<'_>) -> bool {
    let tls = root.virtualhost.tls.as_ref();
    tls.is_some_and(|tls| tls.enable_fallback_certificate)
        && root.proxy.metadata.unknown.refusal("routes").is_none()
        && !tls::is_faulty(root)
}

/// Does not depend on routes, because incremental resolution omits them.
fn admit<'s>(
    root: &Root<'_>,
    settings: Option<&'s IngressSettings>,
    grants: &Grants<'_>,
) -> Result<&'s SecretRef, Fault> {
    if root.proxy.spec.tcpproxy.is_some() {
        return Err(Fault::warning("IgnoredField", "no effect with tcpproxy"));
    }
    let tls = root.virtualhost.tls.as_ref();
    if tls.is_some_and(tls::narrows_versions) {
        let why = "the fallback certificate is served with TLS 1.2 and 1.3, so a host with fewer \
                   versions cannot use it; remove minimumProtocolVersion and \
                   maximumProtocolVersion";
        return Err(Fault::warning("TLSIncompatibleFeatures", why));
    }
    let secret = settings.and_then(|it| it.fallback_certificate.as_ref());
    let Some(secret) = secret else {
        let why = "spec.ingress.fallbackCertificate of the configuration is not set";
        return Err(Fault::error("FallbackNotPresent", why));
    };
    let from = Referrer::new(Kind::HttpProxy, &root.name.namespace);
    let to = Referent::new(Kind::Secret, &secret.namespace, &secret.name);
    let checked = grants.check(from, to);
    checked.map_err(|why| {
        let why = format!("{why}; create one, or a TLSCertificateDelegation");
        Fault::error("FallbackNotDelegated", &why)
    })?;
    Ok(secret)
}

fn check_listeners(root: &Root<'_>, listeners: &ListenersOfGateway<'_, '_>) -> Result<(), Fault> {
    let owner = OwnerName::of(Kind::HttpProxy, &root.proxy.metadata);
    let own = listeners.added(&root.host, owner);
    if own.is_some_and(|own| own.conflict.is_some()) {
        let why = "no effect, because another object's listener serves the host";
        return Err(Fault::warning("Overridden", why));
    }
    let Some(fallback) = listeners.fallback() else {
        return Ok(());
    };
    if let Some((Reason::HostnameConflict, _)) = fallback.conflict {
        let why = "no effect, because the Gateway already has a listener without hostname on this \
                   port, and clients without a known server name get its certificate";
        return Err(Fault::warning("Overridden", why));
    }
    let resolved = fallback.resolved.fault();
    match fallback.accepted.fault().or(resolved) {
        // The last valid certificate is served.
        Some((_, why)) if fallback.serves() => Err(Fault {
            warning: false,
            reason: "FallbackNotValid",
            why: why.to_owned(),
        }),
        Some((_, why)) => Err(Fault::error("FallbackNotValid", why)),
        None => Ok(()),
    }
}
