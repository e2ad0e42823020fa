//! Finds Gateways whose GatewayClass has disappeared from the manifests, possibly by mistake.

use std::collections::BTreeSet;

use sesame_kinds::api::{Gateway, NamespacedName};
use sesame_kinds::world::World;
use sesame_resolver::{Options, merged_name};

use crate::target::Targets;
use sesame_sources::update::GatewayRevision;

pub(super) fn orphans(
    world: &World,
    before: &Targets,
    offers: &[GatewayRevision],
) -> BTreeSet<NamespacedName> {
    let offered: BTreeSet<&NamespacedName> = offers.iter().map(|offer| &offer.gateway).collect();
    before
        .keys()
        .filter(|name| !offered.contains(name))
        .filter(|name| {
            class_of(world, name)
                .is_some_and(|class| world.gateway_classes.get("", class).is_none())
        })
        .cloned()
        .collect()
}

pub(super) fn classes(world: &World, orphans: &BTreeSet<NamespacedName>) -> Option<String> {
    let classes: BTreeSet<&str> = orphans
        .iter()
        .filter_map(|name| class_of(world, name))
        .collect();
    let classes: Vec<String> = classes
        .into_iter()
        .map(|class| format!("{class:?}"))
        .collect();
    let gateways: Vec<String> = orphans.iter().map(ToString::to_string).collect();
    (!gateways.is_empty()).then(|| {
        format!(
            "the manifests no longer contain GatewayClass {}, but Gateways still use it ({})",
            classes.join(", "),
            gateways.join(", ")
        )
    })
}

fn class_of<'w>(world: &'w World, gateway: &NamespacedName) -> Option<&'w str> {
    let named = world.gateways.get(&gateway.namespace, &gateway.name);
    let class = |gateway: &'w Gateway| gateway.spec.gateway_class_name.as_str();
    if let Some(named) = named {
        return Some(class(named));
    }
    // Merged Gateways are published under a name that contains their GatewayClass.
    let mut classes = world.gateways.iter().map(|gateway| class(gateway));
    classes.find(|class| merged_name(class, &Options::default()) == *gateway)
}
