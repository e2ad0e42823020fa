//! Serves one Gateway only: the oldest of the oldest class. Pure.

use std::collections::BTreeSet;

use sesame_gateway_api::api::{Gateway, GatewayClass, Metadata, NamespacedName};
use sesame_gateway_api::resolve::{Options, Resolution, Resolver};
use sesame_gateway_api::status::{
    Condition, ConditionStatus, ConditionType, GatewayClassStatus, GatewayStatus, Reason,
};
use sesame_gateway_api::world::World;

/// Resolves the world as if there were no other class and no other Gateway of ours, and says so in their statuses. The
/// second value holds the Gateways that are not served.
pub(super) fn resolve(
    world: &World,
    resolver: &mut Resolver,
    options: &Options,
) -> (Resolution, BTreeSet<NamespacedName>) {
    let classes: Vec<&GatewayClass> = world
        .gateway_classes
        .iter()
        .map(AsRef::as_ref)
        .filter(|class| class.spec.controller_name == options.controller_name)
        .collect();
    let Some(class) = classes.iter().min_by(|a, b| a.metadata.by_age(&b.metadata)) else {
        return (resolver.resolve(world, options), BTreeSet::new());
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
        .min_by(|a, b| a.metadata.by_age(&b.metadata))
        .map(|gateway| gateway.metadata.key());

    let mut served = world.clone();
    let other_classes = classes
        .iter()
        .filter(|other| other.metadata.name != class.metadata.name);
    for other in other_classes.clone() {
        served.gateway_classes.remove(&other.metadata.key());
    }
    served.gateways.retain(|other| {
        Some(other.metadata.key()) == gateway || !ours(&other.spec.gateway_class_name)
    });
    let mut resolution = resolver.resolve(&served, options);
    for other in other_classes {
        let why = format!(
            "only one GatewayClass is served in mode \"single\", the oldest: {:?}",
            class.metadata.name
        );
        resolution
            .statuses
            .gateway_classes
            .insert(other.metadata.key(), refused_class(&other.metadata, &why));
    }
    let mut unserved = BTreeSet::new();
    for other in gateways {
        let key = other.metadata.key();
        if Some(&key) != gateway.as_ref() {
            let status = refused_gateway(&other.metadata, gateway.as_ref(), &class.metadata.name);
            resolution.statuses.gateways.insert(key.clone(), status);
            unserved.insert(key);
        }
    }
    (resolution, unserved)
}

fn refused_class(metadata: &Metadata, why: &str) -> GatewayClassStatus {
    GatewayClassStatus {
        conditions: vec![refused(ConditionType::Accepted, metadata, why)],
        supported_features: Vec::new(),
    }
}

fn refused_gateway(
    metadata: &Metadata,
    served: Option<&NamespacedName>,
    class: &str,
) -> GatewayStatus {
    let why = match served {
        Some(served) => format!(
            "only one Gateway is served in mode \"single\", the oldest of GatewayClass {class:?}: {served}"
        ),
        None => format!("only Gateways of GatewayClass {class:?} are served in mode \"single\""),
    };
    GatewayStatus {
        conditions: vec![
            refused(ConditionType::Accepted, metadata, &why),
            refused(ConditionType::Programmed, metadata, &why),
        ],
        ..GatewayStatus::default()
    }
}

fn refused(type_: ConditionType, metadata: &Metadata, why: &str) -> Condition {
    Condition::new(
        type_,
        ConditionStatus::False,
        Reason::Invalid,
        why,
        metadata.generation,
    )
}
