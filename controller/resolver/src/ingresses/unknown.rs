//! Gateways that may serve Ingresses or HTTPProxies while `spec.ingress` is unknown.

use std::collections::BTreeSet;

use super::classes::{gateway_of, is_ours};
use crate::gateways::CheckedGateway;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::World;

/// Returns all Gateways if the unknown settings may name the Gateway of an object.
pub(crate) fn gateways<'c, 'w>(
    checked: &'c [CheckedGateway<'w>],
    world: &World,
) -> Vec<&'c CheckedGateway<'w>> {
    let classes = world.ingress_classes.iter().filter(|class| is_ours(class));
    let named: BTreeSet<Option<NamespacedName>> = classes
        .map(|class| {
            let gateway = gateway_of(&class.spec, None).ok();
            gateway.map(|(namespace, name)| NamespacedName::new(namespace, name))
        })
        .collect();
    let is_any = named.contains(&None) || !world.http_proxies.is_empty();
    let gateways = checked.iter();
    gateways
        .filter(|gateway| is_any || named.contains(&Some(gateway.name())))
        .collect()
}
