//! EndpointSlices by their Service: the endpoints of one are found without looking at all slices.

use std::collections::HashMap;

use sesame_proto::schema::EndpointSet;

use sesame_gateway_api::api::{EndpointSlice, NamespacedName};
use sesame_gateway_api::resolve::{self, Options};
use sesame_gateway_api::world::{AnyObject, World};

/// The names of slices by namespace and name of their Service.
#[derive(Debug, Default)]
pub(super) struct ByService(HashMap<NamespacedName, Vec<Box<str>>>);

impl ByService {
    /// Takes note of a slice that is there now.
    pub(super) fn insert(&mut self, service: NamespacedName, slice: &str) {
        let slices = self.0.entry(service).or_default();
        if !slices.iter().any(|known| **known == *slice) {
            slices.push(slice.into());
            slices.shrink_to_fit();
        }
    }

    /// Takes note of a slice that is gone.
    pub(super) fn remove(&mut self, service: &NamespacedName, slice: &str) {
        if let Some(slices) = self.0.get_mut(service) {
            slices.retain(|known| **known != *slice);
            if slices.is_empty() {
                self.0.remove(service);
            }
        }
    }

    /// The endpoint sets that snapshots may have of a Service; none if there is no such Service.
    pub(super) fn endpoint_sets(
        &self,
        key: &NamespacedName,
        world: &World,
        options: &Options,
    ) -> Vec<EndpointSet> {
        let Some(service) = world.services.get(&key.namespace, &key.name) else {
            return Vec::new();
        };
        let names = self.0.get(key).map(Vec::as_slice).unwrap_or_default();
        let slices: Vec<&EndpointSlice> = names
            .iter()
            .filter_map(|name| world.endpoint_slices.get(&key.namespace, name))
            .map(AsRef::as_ref)
            .collect();
        let (sets, problems) = resolve::endpoint_sets(service, &slices, options);
        for problem in &problems {
            tracing::debug!(object = %problem.object, "{}", problem.message);
        }
        sets
    }
}

/// The Service that a slice is of.
pub(super) fn service_of(object: &AnyObject) -> Option<NamespacedName> {
    let AnyObject::EndpointSlice(slice) = object else {
        return None;
    };
    let metadata = &slice.metadata;
    let service = metadata.labels.get(EndpointSlice::SERVICE_NAME_LABEL)?;
    Some(NamespacedName::new(&metadata.namespace, service))
}
