//! Resolves the parents of routes.

pub(crate) mod listeners;

use std::collections::HashMap;

use self::listeners::CommonHostname;
use crate::gateways::CheckedGateway;
use crate::listeners::sets;
use sesame_kinds::api::{GATEWAY_GROUP, Metadata, ParentRef, RouteSpec};
use sesame_kinds::status::Grounds;
use sesame_kinds::world::{Kind, World};

/// Identifies a Gateway or ListenerSet by index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parent {
    pub(crate) gateway: usize,
    /// Index among the Gateway's ListenerSets. `None` for the Gateway itself.
    pub(crate) set: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct RouteParent<'w> {
    pub(crate) reference: &'w ParentRef,
    pub(crate) parent: Parent,
    /// Listener indices with the common hostnames, or why no listener matches.
    pub(crate) listeners: Result<Vec<(usize, Vec<CommonHostname>)>, Grounds>,
}

/// Keyed by kind, namespace and name.
pub(crate) type Parents<'w> = HashMap<(Kind, &'w str, &'w str), Parent>;

pub(crate) fn by_name<'w>(gateways: &[CheckedGateway<'w>]) -> Parents<'w> {
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

/// Returns `None` unless the kind is Gateway or ListenerSet. `own` is the route's namespace.
pub(crate) fn referent<'r>(
    parent: &'r ParentRef,
    own: &'r str,
) -> Option<(Kind, &'r str, &'r str)> {
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

/// Includes the Gateways of parent ListenerSets.
pub(crate) fn gateways_of<'w, R>(
    metadata: &'w Metadata,
    spec: &'w RouteSpec<R>,
    world: &'w World,
) -> Vec<(&'w str, &'w str)> {
    let gateway = |parent| {
        let (kind, namespace, name) = referent(parent, &metadata.namespace)?;
        if kind == Kind::Gateway {
            return Some((namespace, name));
        }
        sets::gateway_of(world.listener_sets.get(namespace, name)?)
    };
    spec.parent_refs.iter().filter_map(gateway).collect()
}
