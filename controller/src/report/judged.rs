//! What the engine has to say about every object.

use std::collections::BTreeMap;

use crate::api::NamespacedName;
use crate::status::Statuses;

/// The outcome of one resolution, without what hosts say.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Of all objects of ours.
    pub(crate) statuses: Statuses,
    /// What is to be published of each Gateway.
    pub(crate) revisions: BTreeMap<NamespacedName, String>,
    /// Gateways of which nothing can be published, and why.
    pub(crate) unpublishable: BTreeMap<NamespacedName, String>,
}
