//! `spec.tls` of an Ingress. Its certificates are not served: HTTPS needs a listener of the Gateway,
//! with a certificate for the host. An Ingress that lacks one must say so.

use std::collections::BTreeSet;

use super::listeners::IngressListeners;
use super::rules::IngressFaults;
use crate::api::{IngressSpec, IngressTls};
use crate::resolve::context::ResolveContext;
use crate::resolve::gateways::CheckedGateway;
use crate::resolve::syntax::hostnames::Hostname;
use crate::resolve::syntax::limits;
use crate::status::Reason;
use crate::world::ObjectKey;

/// Adds what becomes of each entry: a fault for hosts without HTTPS, else a problem about a Secret
/// that is not used.
pub(super) fn tell(
    spec: &IngressSpec,
    object: &ObjectKey,
    gateway: &CheckedGateway<'_>,
    cx: &mut ResolveContext<'_, '_>,
    faults: &mut IngressFaults,
) {
    for (index, entry) in spec.tls.iter().take(limits::MAX_LISTENERS).enumerate() {
        let IngressTls { hosts, secret_name } = entry;
        let of_rules = spec.rules.iter().map(|rule| &rule.host);
        let mut wanted: BTreeSet<&String> = hosts.iter().collect();
        if hosts.is_empty() {
            wanted.extend(of_rules);
        }
        let without: Vec<&str> = wanted
            .into_iter()
            .map(String::as_str)
            .filter(|host| !has_https(host, &object.name.namespace, gateway, cx))
            .map(|host| if host.is_empty() { "*" } else { host })
            .collect();
        if without.is_empty() {
            let message = format!(
                "spec.tls[{index}].secretName {secret_name:?} is not used: clients get the \
                 certificates of the HTTPS listeners of {}",
                gateway.owner.display()
            );
            cx.problems.add(object.clone(), message);
        } else {
            let message = format!(
                "tls[{index}]: not served over HTTPS: {}; certificates of an Ingress are not \
                 supported: add an HTTPS listener with a certificate for these hosts to {}",
                without.join(", "),
                gateway.owner.display()
            );
            faults.rules.refuse(Reason::UnsupportedValue, message);
        }
    }
}

/// Returns true if an HTTPS listener for all of the host is there.
fn has_https(
    host: &str,
    namespace: &str,
    gateway: &CheckedGateway<'_>,
    cx: &ResolveContext<'_, '_>,
) -> bool {
    let Ok(host) = Hostname::parse(host) else {
        return false;
    };
    let found = IngressListeners::find(gateway, &host, namespace, cx);
    // The common hostname is the host itself if the listener covers all of it.
    let mut common = found.https.iter().flat_map(|(_, common)| common);
    common.any(|common| common.domain == host)
}
