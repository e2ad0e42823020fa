//! Defines the desired publications. A publication that is not listed here is withdrawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Publication;
use sesame_gateway_api::api::NamespacedName;

/// Desired state of one Gateway's publication.
#[derive(Clone, Debug)]
pub(crate) enum DesiredPublication {
    /// Write this publication.
    Publish(Arc<Publication>),
    /// Keep the existing publication. The Gateway is ours but cannot currently be resolved.
    Retain,
}

/// Desired publications of all of this controller's Gateways.
pub(crate) type DesiredPublications = BTreeMap<NamespacedName, DesiredPublication>;

/// Returns the revision to publish for each Gateway.
pub(crate) fn revisions(desired: &DesiredPublications) -> BTreeMap<NamespacedName, String> {
    desired
        .iter()
        .filter_map(|(name, desired)| match desired {
            DesiredPublication::Publish(publication) => {
                Some((name.clone(), publication.revision.clone()))
            }
            DesiredPublication::Retain => None,
        })
        .collect()
}
