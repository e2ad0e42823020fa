//! What routes may attach to: Gateways and their ListenerSets, by name.

pub(crate) mod attach;

use std::collections::HashMap;

use crate::api::{GATEWAY_GROUP, Metadata, ParentRef, RouteSpec};
use crate::resolve::gateways::GatewayState;
use crate::resolve::listeners::sets;
use crate::world::{Kind, World};

/// What a route may attach to, by its place.
#[derive(Clone, Copy)]
pub(crate) struct Parent {
    pub(crate) gateway: usize,
    /// None: the Gateway itself.
    pub(crate) set: Option<usize>,
}

/// The Gateways and ListenerSets by kind, namespace and name.
pub(crate) fn by_name<'w>(
    gateways: &[GatewayState<'w>],
) -> HashMap<(Kind, &'w str, &'w str), Parent> {
    let mut found = HashMap::new();
    for (i, gateway) in gateways.iter().enumerate() {
        let sets = gateway.sets.iter().map(|set| &set.owner).enumerate();
        let owners = std::iter::once((None, &gateway.owner))
            .chain(sets.map(|(set, owner)| (Some(set), owner)));
        for (set, owner) in owners {
            found.insert(
                (owner.kind, owner.namespace, owner.name),
                Parent { gateway: i, set },
            );
        }
    }
    found
}

/// What a reference means, as kind, namespace and name; none if that has no listeners.
pub(crate) fn meant<'r>(parent: &'r ParentRef, own: &'r str) -> Option<(Kind, &'r str, &'r str)> {
    let ParentRef {
        group,
        kind,
        namespace,
        name,
        section_name: _,
        port: _,
    } = parent;
    let group = group.as_deref().unwrap_or(GATEWAY_GROUP);
    let kind = kind.as_deref().unwrap_or(Kind::Gateway.as_str());
    let kind = [Kind::Gateway, Kind::ListenerSet]
        .into_iter()
        .find(|known| group == GATEWAY_GROUP && known.as_str() == kind)?;
    Some((kind, namespace.as_deref().unwrap_or(own), name))
}

/// The namespaces and names of the Gateways that a route asks for, itself or through a ListenerSet.
pub(crate) fn gateways_of<'w, R>(
    metadata: &'w Metadata,
    spec: &'w RouteSpec<R>,
    world: &'w World,
) -> Vec<(&'w str, &'w str)> {
    let gateway = |parent| {
        let (kind, namespace, name) = meant(parent, &metadata.namespace)?;
        if kind == Kind::Gateway {
            return Some((namespace, name));
        }
        sets::gateway_of(world.listener_sets.get(namespace, name)?)
    };
    spec.parent_refs.iter().filter_map(gateway).collect()
}
