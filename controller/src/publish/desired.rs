//! Defines the desired publications. A publication that is not listed here is withdrawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Publication;
use sesame_kinds::api::NamespacedName;

#[derive(Clone, Debug)]
pub(crate) enum DesiredPublication {
    Publish(Arc<Publication>),
    /// The Gateway is ours but cannot be resolved now.
    Retain,
}

pub(crate) type DesiredPublications = BTreeMap<NamespacedName, DesiredPublication>;

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
