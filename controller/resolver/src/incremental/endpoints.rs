//! Computes the endpoints of a few Services without reading every EndpointSlice.
//!
//! No other part of a resolution depends on EndpointSlices.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sesame_proto::schema::EndpointSet;

use crate::backends::endpoints::of_port;
use crate::backends::weighted;
pub use crate::backends::weighted::add_partners;
use crate::context::Problems;
use crate::{Options, Problem, endpoint_sets};
use sesame_kinds::api::{EndpointSlice, NamespacedName};
use sesame_kinds::world::{AnyObject, World};

/// Names of EndpointSlices, keyed by namespace and name of their Service.
#[derive(Clone, Debug, Default)]
pub struct SliceIndex(HashMap<NamespacedName, Vec<Box<str>>>);

impl SliceIndex {
    /// Indexes only the slices of these Services.
    pub fn of(world: &World, services: &BTreeSet<NamespacedName>) -> Self {
        let mut index = Self::default();
        if services.is_empty() {
            return index;
        }
        // There may be thousands of slices, so skip slices of other Services before allocating a
        // name.
        let wanted: BTreeSet<(&str, &str)> = services
            .iter()
            .map(|key| (key.name.as_str(), key.namespace.as_str()))
            .collect();
        let is_wanted = |slice: &&Arc<EndpointSlice>| {
            let namespace = slice.metadata.namespace.as_str();
            let service = slice.service();
            service.is_some_and(|service| wanted.contains(&(service, namespace)))
        };
        for slice in world.endpoint_slices.iter().filter(is_wanted) {
            if let Some(service) = service_of_slice(slice) {
                index.insert(service, &slice.metadata.name);
            }
        }
        index
    }

    /// Adds a slice to its Service's entry.
    pub fn insert(&mut self, service: NamespacedName, slice: &str) {
        let slices = self.0.entry(service).or_default();
        if !slices.iter().any(|known| **known == *slice) {
            slices.push(slice.into());
            slices.shrink_to_fit();
        }
    }

    /// Removes a slice from its Service's entry.
    pub fn remove(&mut self, service: &NamespacedName, slice: &str) {
        if let Some(slices) = self.0.get_mut(service) {
            slices.retain(|known| **known != *slice);
            if slices.is_empty() {
                self.0.remove(service);
            }
        }
    }

    /// Returns the same endpoint sets and problems as a full resolution. A Service that does not
    /// exist has no sets. The Services of an ExtensionService also have a common set, if `services`
    /// contains all of them ([`add_partners`]).
    pub fn endpoint_sets(
        &self,
        services: &BTreeSet<NamespacedName>,
        world: &World,
        options: &Options,
    ) -> (Vec<EndpointSet>, Vec<Problem>) {
        let (mut sets, mut problems) = (Vec::new(), Vec::new());
        for key in services {
            let Some(service) = world.services.get(&key.namespace, &key.name) else {
                continue;
            };
            let slices = self.slices_of(key, world);
            let (service_sets, slice_problems) = endpoint_sets(service, &slices, options);
            sets.extend(service_sets);
            problems.extend(slice_problems);
        }
        let joined = weighted::sets(world, services, |service, port| {
            let slices = self.slices_of(&service.metadata.key(), world);
            // The problems are known already.
            of_port(
                String::new(),
                port,
                &slices,
                options,
                &mut Problems::default(),
            )
        });
        sets.extend(joined);
        (sets, problems)
    }

    fn slices_of<'w>(&self, service: &NamespacedName, world: &'w World) -> Vec<&'w EndpointSlice> {
        let names = self.0.get(service).map(Vec::as_slice).unwrap_or_default();
        let slices = names
            .iter()
            .filter_map(|name| world.endpoint_slices.get(&service.namespace, name));
        slices.map(AsRef::as_ref).collect()
    }
}

/// Returns an EndpointSlice's Service. Returns `None` for other objects, and for slices without a
/// Service.
pub fn service_of(object: &AnyObject) -> Option<NamespacedName> {
    match object {
        AnyObject::EndpointSlice(slice) => service_of_slice(slice),
        _ => None,
    }
}

fn service_of_slice(slice: &EndpointSlice) -> Option<NamespacedName> {
    let service = slice.service()?;
    Some(NamespacedName::new(&slice.metadata.namespace, service))
}
