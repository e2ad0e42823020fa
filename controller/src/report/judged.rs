//! What the engine has to say about every object.

use std::collections::BTreeMap;

use jiff::Timestamp;

use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::expiry::{Expiry, Warning};
use sesame_gateway_api::status::{RouteStatus, Statuses};
use sesame_gateway_api::world::ObjectKey;

/// The outcome of one resolution, without what hosts say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    /// Of all objects of ours.
    pub(crate) statuses: Statuses,
    /// What is to be published of each Gateway.
    pub(crate) revisions: BTreeMap<NamespacedName, String>,
    /// Gateways of which nothing can be published, and why.
    pub(crate) unpublishable: BTreeMap<NamespacedName, String>,
    /// When the certificates of each Gateway expire.
    pub(crate) expiries: BTreeMap<NamespacedName, Vec<Expiry>>,
}

impl Judged {
    /// What is to be said of a Gateway's certificates now.
    pub(super) fn warnings(&self, gateway: &NamespacedName, now: Timestamp) -> Vec<Warning> {
        let expiries = self.expiries.get(gateway).into_iter().flatten();
        expiries.filter_map(|expiry| expiry.warning(now)).collect()
    }
}

/// What is said otherwise of some routes.
#[derive(Debug, Default)]
pub(crate) struct Rejudged {
    /// Their statuses.
    pub(crate) routes: Vec<(ObjectKey, RouteStatus)>,
    /// What is to be published of each Gateway now; empty if that is the same.
    pub(crate) revisions: BTreeMap<NamespacedName, String>,
}
