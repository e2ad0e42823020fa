//! Serves only one Gateway: the configured Gateway, or the oldest of the oldest class.

use std::collections::BTreeSet;

use crate::configuration::SelectionRule;
use sesame_gateway_api::api::{Gateway, GatewayClass, Metadata, NamespacedName};
use sesame_gateway_api::resolve::{Options, Resolution, Resolver};
use sesame_gateway_api::status::{
    Condition, ConditionStatus, ConditionType, GatewayClassStatus, GatewayStatus, Reason,
};
use sesame_gateway_api::world::World;

/// Also returns the Gateways that are not served.
pub(super) fn all(
    world: &World,
    resolver: &mut Resolver,
    options: &Options,
) -> (Resolution, BTreeSet<NamespacedName>) {
    let mut resolution = resolver.resolve(world, options);
    let unserved = std::mem::take(&mut resolution.unserved);
    (resolution, unserved)
}

/// Resolves the world as if it had one class and one Gateway.
pub(super) fn resolve(
    world: &World,
    resolver: &mut Resolver,
    options: &Options,
    rule: &SelectionRule,
) -> (Resolution, BTreeSet<NamespacedName>) {
    let named = match rule {
        SelectionRule::Only(named) => Some(named),
        SelectionRule::Multiple | SelectionRule::Single => None,
    };
    let classes: Vec<&GatewayClass> = world
        .gateway_classes
        .iter()
        .map(AsRef::as_ref)
        .filter(|class| class.spec.controller_name == options.controller_name)
        .collect();
    let Some(class) = served_class(world, &classes, named) else {
        return all(world, resolver, options);
    };
    let ours = |name: &str| classes.iter().any(|class| class.metadata.name == name);
    let gateways: Vec<&Gateway> = world
        .gateways
        .iter()
        .map(AsRef::as_ref)
        .filter(|gateway| ours(&gateway.spec.gateway_class_name))
        .collect();
    let gateway = gateways
        .iter()
        .filter(|gateway| gateway.spec.gateway_class_name == class.metadata.name)
        .filter(|gateway| named.is_none_or(|named| gateway.metadata.key() == *named))
        .min_by(|a, b| a.metadata.by_age(&b.metadata))
        .map(|gateway| gateway.metadata.key());

    let mut served = world.clone();
    // If a Gateway is configured, keep all classes, because it may belong to any of them.
    let other_classes = classes
        .iter()
        .filter(|other| named.is_none() && other.metadata.name != class.metadata.name);
    for other in other_classes.clone() {
        served.gateway_classes.remove(&other.metadata.key());
    }
    served.gateways.retain(|other| {
        Some(other.metadata.key()) == gateway || !ours(&other.spec.gateway_class_name)
    });
    let (mut resolution, mut unserved) = all(&served, resolver, options);
    for other in other_classes {
        let why = format!(
            "spec.gateway.mode is Single, so only the oldest GatewayClass is served: {:?}",
            class.metadata.name
        );
        resolution
            .statuses
            .gateway_classes
            .insert(other.metadata.key(), refused_class(&other.metadata, &why));
    }
    for other in gateways {
        let key = other.metadata.key();
        if Some(&key) != gateway.as_ref() {
            let (reason, why) = why_unserved(named, gateway.as_ref(), &class.metadata.name);
            let status = GatewayStatus::unserved(reason, &why, other.metadata.generation);
            resolution.statuses.gateways.insert(key.clone(), status);
            unserved.insert(key);
        }
    }
    (resolution, unserved)
}

fn served_class<'w>(
    world: &World,
    classes: &[&'w GatewayClass],
    named: Option<&NamespacedName>,
) -> Option<&'w GatewayClass> {
    let class_of_named = named
        .and_then(|named| world.gateways.get(&named.namespace, &named.name))
        .and_then(|gateway| {
            let class = &gateway.spec.gateway_class_name;
            classes.iter().find(|it| it.metadata.name == *class)
        });
    let oldest = || classes.iter().min_by(|a, b| a.metadata.by_age(&b.metadata));
    class_of_named.or_else(oldest).copied()
}

fn why_unserved(
    named: Option<&NamespacedName>,
    served: Option<&NamespacedName>,
    class: &str,
) -> (Reason, String) {
    match (named, served) {
        (Some(named), _) => (
            Reason::Invalid,
            format!("only Gateway {named} is served (spec.gateway.gatewayRef)"),
        ),
        (None, Some(served)) => (
            Reason::OlderGatewayExists,
            format!(
                "spec.gateway.mode is Single, so only the oldest Gateway of GatewayClass {class:?} is served: {served}"
            ),
        ),
        (None, None) => (
            Reason::Invalid,
            format!(
                "only Gateways of GatewayClass {class:?} are served (spec.gateway.mode is Single)"
            ),
        ),
    }
}

fn refused_class(metadata: &Metadata, why: &str) -> GatewayClassStatus {
    GatewayClassStatus {
        conditions: vec![refused(metadata, why)],
        supported_features: Vec::new(),
    }
}

fn refused(metadata: &Metadata, why: &str) -> Condition {
    Condition::new(
        ConditionType::Accepted,
        ConditionStatus::False,
        Reason::OlderGatewayClassExists,
        why,
        metadata.generation,
    )
}
