//! Rejects listeners of HTTPProxies and Ingresses that lose their hostname to a TLSRoute.
//!
//! Gateway API objects take precedence over HTTPProxies and Ingresses.

use std::collections::BTreeSet;

use crate::gateways::CheckedGateway;
use crate::routes::{CheckedRoute, Routes};
use sesame_kinds::status::Reason;
use sesame_kinds::world::Kind;

pub(crate) fn give_way(gateways: &mut [CheckedGateway<'_>], routes: &Routes<'_>) {
    let mut taken: BTreeSet<(usize, u16, &str)> = BTreeSet::new();
    let tls_routes = routes.iter().filter(|it| it.object.kind == Kind::TlsRoute);
    for (_, (gateway, listeners)) in tls_routes.flat_map(CheckedRoute::attaches_to) {
        for (place, hosts) in listeners {
            let on = gateways
                .get(gateway)
                .and_then(|it| it.listeners.get(*place));
            if let Some(port) = on.filter(|it| it.serves()).and_then(|it| it.port) {
                taken.extend(hosts.iter().map(|host| (gateway, port, host.domain.key())));
            }
        }
    }
    if taken.is_empty() {
        return;
    }
    for (place, gateway) in gateways.iter_mut().enumerate() {
        for listener in &mut gateway.listeners {
            let (Some(port), Some(hostname)) = (listener.port, &listener.hostname) else {
                continue;
            };
            let is_implicit = matches!(listener.owner, Kind::HttpProxy | Kind::Ingress);
            if is_implicit && taken.contains(&(place, port, hostname.key())) {
                let message = format!(
                    "a TLSRoute has server name {:?} on port {port}",
                    hostname.domain()
                );
                listener.accepted.refuse(Reason::OtherRoute, &message);
                listener.conflict = Some((Reason::OtherRoute, message));
                listener.holds = None;
            }
        }
    }
}
