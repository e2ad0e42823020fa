//! Incremental resolution of changes to a few routes or endpoints.
//!
//! The result must never differ from a full resolution (property tests compare the two). If the
//! result might differ, `resolve` returns `None`, and the caller must resolve the whole world.

mod backends;
mod endpoints;
mod neighbours;
mod routes;

use std::collections::BTreeSet;

use sesame_proto::schema::EndpointSet;

pub use self::backends::{PreviousServices, SetsOfServices};
pub use self::endpoints::{SliceIndex, add_partners, service_of};
pub use self::routes::{
    PreviousObjects, PreviousRoutes, RouteDelta, RouteStatusChange, is_incremental,
    resolve as resolve_routes,
};
use super::{Options, Resolver};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, ObjectKey, World};

/// The changes since the last resolution.
#[derive(Debug, Default)]
pub struct Delta {
    /// The changes to routes.
    pub routes: RouteDelta,
    /// Endpoint sets that may have changed. Each Gateway ignores the sets that it does not use.
    pub endpoints: Vec<EndpointSet>,
}

/// Returns the changes between two worlds that differ only in the `changed` objects. Returns `None`
/// if a full resolution is needed. `resolver` must have resolved `before`.
pub fn resolve(
    before: &World,
    world: &World,
    changed: &[ObjectKey],
    resolver: &mut Resolver,
    options: &Options,
) -> Option<Delta> {
    let mut previous = PreviousObjects::default();
    let mut services = BTreeSet::new();
    // Each slice with its Service before and after the change.
    let mut slices = Vec::new();
    for key in changed {
        let (old, new) = (before.get(key), world.get(key));
        match key.kind {
            Kind::EndpointSlice => {
                let of = [old, new].map(|slice| slice.as_ref().and_then(service_of));
                services.extend(of.iter().flatten().cloned());
                slices.push((&key.name.name, of));
            }
            Kind::Service => {
                let service = before.services.get(&key.name.namespace, &key.name.name);
                previous.services.insert(key.name.clone(), service.cloned());
                services.insert(key.name.clone());
            }
            kind if is_incremental(kind) => {
                previous.routes.insert(key.clone(), old?);
            }
            _ => return None,
        }
    }
    add_partners(world, &mut services);
    // A full resolution reports problems, because they depend on the ports that all routes use.
    let sets = |world: &World, index: &SliceIndex| {
        let (sets, problems) = index.endpoint_sets(&services, world, options);
        problems.is_empty().then_some(sets)
    };
    // Scanning all slices dominates the cost, so scan them only once.
    let index = SliceIndex::of(world, &services);
    let mut index_before = index.clone();
    for (name, [old, new]) in slices {
        if let Some(service) = new {
            index_before.remove(&service, name);
        }
        if let Some(service) = old {
            index_before.insert(service, name);
        }
    }
    sets(before, &index_before)?;
    let endpoints = sets(world, &index)?;
    let sets_of = |of: &BTreeSet<NamespacedName>| {
        if of.is_subset(&services) {
            return index.endpoint_sets(of, world, options);
        }
        SliceIndex::of(world, of).endpoint_sets(of, world, options)
    };
    let PreviousObjects {
        routes,
        services: of_services,
    } = &previous;
    let routes = if routes.is_empty() && of_services.is_empty() {
        RouteDelta::default()
    } else {
        resolve_routes(world, previous, &sets_of, resolver, options)?
    };
    Some(Delta { routes, endpoints })
}
