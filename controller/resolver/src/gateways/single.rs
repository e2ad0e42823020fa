//! GatewayClasses that serve only the oldest Gateway.

use std::collections::BTreeMap;

use super::classes::Classes;
use sesame_kinds::api::{FleetGateways, Gateway, Metadata, NamespacedName};
use sesame_kinds::status::{GatewayStatus, Reason};
use sesame_kinds::world::World;

pub(crate) fn unserved(
    classes: &Classes<'_>,
    world: &World,
) -> BTreeMap<NamespacedName, GatewayStatus> {
    let class_of = |gateway: &Gateway| classes.get(&gateway.spec.gateway_class_name);
    let single_gateways = world.gateways.iter().filter(|gateway| {
        class_of(gateway).is_some_and(|class| *class.gateways() == FleetGateways::Single)
    });
    let mut by_class: BTreeMap<&str, Vec<&Gateway>> = BTreeMap::new();
    for gateway in single_gateways {
        let class = gateway.spec.gateway_class_name.as_str();
        by_class.entry(class).or_default().push(gateway);
    }
    let mut unserved = BTreeMap::new();
    for (class, mut gateways) in by_class {
        gateways.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        let mut gateways = gateways.into_iter().map(|gateway| &gateway.metadata);
        let Some(oldest) = gateways.next().map(Metadata::key) else {
            continue;
        };
        for other in gateways {
            let why = format!(
                "spec.fleet.gateways is Single, so only the oldest Gateway of GatewayClass {class:?} is served: {oldest}"
            );
            let status =
                GatewayStatus::unserved(Reason::OlderGatewayExists, &why, other.generation);
            unserved.insert(other.key(), status);
        }
    }
    unserved
}
