//! Determines which Envoy instances serve a Gateway, and which of the Gateway's listeners are in
//! the snapshot. A Gateway that is not accepted must never contribute a listener that forwards
//! requests.

use std::collections::BTreeSet;

use super::CheckedGateway;
use crate::listeners::CheckedListener;
use sesame_kinds::api::NamespacedName;

impl CheckedGateway<'_> {
    pub(crate) fn published_as(&self) -> NamespacedName {
        self.merged.clone().unwrap_or_else(|| self.name())
    }

    /// Listeners are compared among Gateways with the same key. A Gateway that is not accepted is
    /// compared with no other Gateway.
    pub(crate) fn comparison_key(&self) -> (NamespacedName, bool) {
        let merged = self.merged.clone().filter(|_| self.accepted.good());
        let is_merged = merged.is_some();
        (merged.unwrap_or_else(|| self.name()), is_merged)
    }

    /// Gateways with the same key share a snapshot, whether or not they are accepted.
    pub(crate) fn snapshot_key(&self) -> (NamespacedName, bool) {
        (self.published_as(), self.merged.is_some())
    }

    pub(crate) fn has_refusing(&self) -> bool {
        let refuses = |it: &CheckedListener<'_>| it.refuses() && self.has_in_snapshot(it);
        self.listeners.iter().any(refuses)
    }

    /// If the Gateway is not accepted, only its listeners that hold a hostname are in the snapshot.
    /// They reject all requests.
    pub(crate) fn has_in_snapshot(&self, listener: &CheckedListener<'_>) -> bool {
        self.accepted.good() || listener.holds.is_some()
    }

    pub(crate) fn keys(&self) -> BTreeSet<String> {
        let served = self.listeners.iter().filter(|it| it.is_served());
        let terminations = served.filter_map(|listener| listener.tls.as_ref());
        let keys = terminations.flat_map(|tls| &tls.keys);
        keys.chain(&self.client_key).cloned().collect()
    }
}
