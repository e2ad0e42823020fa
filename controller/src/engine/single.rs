//! Serves only one Gateway: the configured Gateway, or the oldest of the oldest class.

use std::collections::BTreeSet;

use crate::configuration::SelectionRule;
use sesame_kinds::api::{Gateway, GatewayClass, Metadata, NamespacedName};
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, GatewayClassStatus, GatewayStatus, Reason,
};
use sesame_kinds::world::World;
use sesame_resolver::{ImpliedGateway, Options, Resolution, Resolver, with_implied_gateway};

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
    let implied = ImpliedGateway::find(world, options);
    let (objects, configured) = (world, options);
    let world = &*with_implied_gateway(world, options);
    let options = &Options {
        implied_gateway: false,
        ..options.clone()
    };
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
        let (mut resolution, unserved) = all(world, resolver, options);
        resolution.report_unused_listeners(objects, configured, None);
        return (resolution, unserved);
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
    if let Some(implied) = &implied {
        resolution.record_implied(implied, options);
        // No object has this status.
        if gateway.as_ref() != Some(&implied.name()) {
            resolution.statuses.gateways.remove(&implied.name());
        }
    }
    resolution.report_unused_listeners(objects, configured, gateway.as_ref());
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sesame_resolver::ResolvedFor;

    use super::*;

    const CONFIGURATION: &str = "{metadata: {name: own}, spec: {ingress: {gatewayRef: {namespace: \
        web, name: gw}, listeners: [{port: 80}]}}}";

    #[test]
    fn only_gateway_may_be_implied() {
        let configuration = serde_saphyr::from_str(CONFIGURATION).expect("a configuration");
        let options = Options {
            configuration: Some(Arc::new(configuration)),
            resolved_for: ResolvedFor::Cluster,
            ..Options::default()
        };
        let name = NamespacedName::new("web", "gw");
        for rule in [SelectionRule::Single, SelectionRule::Only(name.clone())] {
            let world = World::default();
            let (resolution, _) = resolve(&world, &mut Resolver::default(), &options, &rule);
            assert!(resolution.statuses.gateway_classes.is_empty());
            let class = resolution.settings[&name].implied_class.as_deref();
            assert_eq!(class, Some("sesame"));
        }
    }
    #[test]
    fn unused_listeners_are_reported_at_served_gateway() {
        let configuration = serde_saphyr::from_str(CONFIGURATION).expect("a configuration");
        let options = Options {
            configuration: Some(Arc::new(configuration)),
            resolved_for: ResolvedFor::Cluster,
            ..Options::default()
        };
        let class: GatewayClass = serde_saphyr::from_str(
            "{metadata: {name: sesame}, spec: {controllerName: \
             projectsesame.io/gateway-controller}}",
        )
        .expect("a class");
        for (name, why) in [
            ("gw", "because Gateway web/gw exists"),
            ("other", "because only Gateway web/other is served"),
        ] {
            let gateway = format!(
                "{{metadata: {{name: {name}, namespace: web}}, spec: {{gatewayClassName: sesame, \
                 listeners: [{{name: http, port: 80, protocol: HTTP}}]}}}}"
            );
            let gateway: Gateway = serde_saphyr::from_str(&gateway).expect("a Gateway");
            let mut world = World::default();
            world.gateway_classes.insert(Arc::new(class.clone()));
            world.gateways.insert(Arc::new(gateway));
            let rule = SelectionRule::Single;
            let (resolution, _) = resolve(&world, &mut Resolver::default(), &options, &rule);
            let gateways: Vec<_> = resolution.statuses.gateways.iter().collect();
            let [(found, status)] = gateways.as_slice() else {
                panic!("{gateways:?}");
            };
            assert_eq!(**found, NamespacedName::new("web", name));
            let accepted = &status.conditions[0];
            assert!(accepted.message.contains(why), "{}", accepted.message);
            let [problem] = resolution.problems.as_slice() else {
                panic!("{:?}", resolution.problems);
            };
            assert!(problem.message.contains(why), "{}", problem.message);
        }
    }
}
