//! The listeners that the rules of an Ingress attach to.
//!
//! An Ingress names no listener. Its rules attach to all HTTP and HTTPS listeners of the Gateway
//! with a hostname in common that allow its namespace. The administrator's IngressClass opens the
//! Gateway's own listeners without a hostname, unless they select namespaces.

use sesame_proto::schema::Protocol;

use crate::resolve::context::ResolveContext;
use crate::resolve::gateways::CheckedGateway;
use crate::resolve::listeners::{CheckedListener, NamespaceRule};
use crate::resolve::parents::listeners::CommonHostname;
use crate::resolve::syntax::hostnames::Hostname;

/// Listeners of a Gateway by position, each with the common hostname.
pub(super) type FoundListeners = Vec<(usize, Vec<CommonHostname>)>;

/// The listeners for rules of one host, by protocol.
#[derive(Default)]
pub(super) struct IngressListeners {
    pub(super) http: FoundListeners,
    pub(super) https: FoundListeners,
}

impl IngressListeners {
    /// Finds the listeners for a host of an Ingress.
    pub(super) fn find(
        gateway: &CheckedGateway<'_>,
        host: &Hostname,
        namespace: &str,
        cx: &ResolveContext<'_, '_>,
    ) -> Self {
        let own = gateway.own_listeners().len();
        let mut found = Self::default();
        for (place, listener) in gateway.listeners.iter().enumerate() {
            let by_protocol = match listener.protocol {
                Some(Protocol::Http) => &mut found.http,
                Some(Protocol::Https) => &mut found.https,
                _ => continue,
            };
            let common = listener.hostname.as_ref().and_then(|it| it.intersect(host));
            let Some(domain) = common else {
                continue;
            };
            let opened = place < own && is_opened_by_class(listener);
            if opened || listener.namespaces.allows(namespace, cx.world) {
                let rank = host.specificity();
                by_protocol.push((place, vec![CommonHostname { domain, rank }]));
            }
        }
        found
    }
}

/// Returns true for a listener without a hostname and without a choice of namespaces.
fn is_opened_by_class(listener: &CheckedListener<'_>) -> bool {
    listener.hostname.as_ref() == Some(&Hostname::any())
        && matches!(listener.namespaces, NamespaceRule::Same(_))
}
