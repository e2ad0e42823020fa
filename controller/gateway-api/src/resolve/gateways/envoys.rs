//! The Envoys of a Gateway, and its share of them. An unaccepted Gateway must never get more than
//! it has.

use std::collections::BTreeSet;

use super::CheckedGateway;
use crate::api::NamespacedName;
use crate::resolve::listeners::CheckedListener;

impl CheckedGateway<'_> {
    /// Returns the name under which it is published.
    pub(crate) fn published_as(&self) -> NamespacedName {
        self.merged.clone().unwrap_or_else(|| self.name())
    }

    /// Returns the place of its snapshot among all: Gateways with the same one are served together. One that is not accepted is
    /// with no other.
    pub(crate) fn order(&self) -> (NamespacedName, bool) {
        let merged = self.merged.clone().filter(|_| self.accepted.good());
        let is_merged = merged.is_some();
        (merged.unwrap_or_else(|| self.name()), is_merged)
    }

    /// Returns its Envoys, whether it is accepted or not. Gateways with the same Envoys share
    /// ports, of which an unaccepted one keeps only its own.
    pub(crate) fn envoys(&self) -> (NamespacedName, bool) {
        (self.published_as(), self.merged.is_some())
    }

    /// Returns true if it has listeners that are there only to refuse all requests; of one that is not accepted, those that hold their
    /// hostnames.
    pub(crate) fn has_refusing(&self) -> bool {
        let refuses = |it: &CheckedListener<'_>| it.refuses() && self.has_in_snapshot(it);
        self.listeners.iter().any(refuses)
    }

    /// Returns true if its served listener may be in the snapshot. Of an unaccepted Gateway, only
    /// one that refuses its requests may.
    pub(crate) fn has_in_snapshot(&self, listener: &CheckedListener<'_>) -> bool {
        self.accepted.good() || listener.holds.is_some()
    }

    /// Returns the names of the keys that it shows to clients and to backends.
    pub(crate) fn keys(&self) -> BTreeSet<String> {
        let served = self.listeners.iter().filter(|it| it.is_served());
        let terminations = served.filter_map(|listener| listener.tls.as_ref());
        let keys = terminations.flat_map(|tls| &tls.keys);
        keys.chain(&self.client_key).cloned().collect()
    }
}
