//! The publications that there should be. Whatever else was published is withdrawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Bundle;
use sesame_gateway_api::api::NamespacedName;

/// Publication of one Gateway.
#[derive(Clone, Debug)]
pub(crate) enum DesiredPublication {
    /// Publish this bundle.
    Publish(Arc<Bundle>),
    /// Retain what was published: the Gateway is ours, but nothing can be made of it now.
    Retain,
}

/// Publications of all Gateways that are ours.
pub(crate) type DesiredPublications = BTreeMap<NamespacedName, DesiredPublication>;

/// Returns the revision of each Gateway that is to be published.
pub(crate) fn revisions(desired: &DesiredPublications) -> BTreeMap<NamespacedName, String> {
    desired
        .iter()
        .filter_map(|(name, desired)| match desired {
            DesiredPublication::Publish(bundle) => Some((name.clone(), bundle.revision.clone())),
            DesiredPublication::Retain => None,
        })
        .collect()
}
