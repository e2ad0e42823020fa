//! The Envoys of a Gateway, and its share of them. An unaccepted Gateway must never get a larger
//! share.

use std::collections::BTreeSet;

use super::CheckedGateway;
use crate::api::NamespacedName;
use crate::resolve::listeners::CheckedListener;

impl CheckedGateway<'_> {
    /// Returns the name under which it is published.
    pub(crate) fn published_as(&self) -> NamespacedName {
        self.merged.clone().unwrap_or_else(|| self.name())
    }

    /// Returns the order of its snapshot: Gateways with the same order are served together. An
    /// unaccepted one shares with no other.
    pub(crate) fn order(&self) -> (NamespacedName, bool) {
        let merged = self.merged.clone().filter(|_| self.accepted.good());
        let is_merged = merged.is_some();
        (merged.unwrap_or_else(|| self.name()), is_merged)
    }

    /// Returns its Envoys, whether it is accepted or not. Gateways with the same Envoys share
    /// ports; an unaccepted one keeps only its own.
    pub(crate) fn envoys(&self) -> (NamespacedName, bool) {
        (self.published_as(), self.merged.is_some())
    }

    /// Returns true if it has listeners that only refuse requests. Of an unaccepted Gateway, only
    /// listeners that hold their hostnames count.
    pub(crate) fn has_refusing(&self) -> bool {
        let refuses = |it: &CheckedListener<'_>| it.refuses() && self.has_in_snapshot(it);
        self.listeners.iter().any(refuses)
    }

    /// Returns true if its served listener may be in the snapshot. Of an unaccepted Gateway, only a
    /// refusing one may.
    pub(crate) fn has_in_snapshot(&self, listener: &CheckedListener<'_>) -> bool {
        self.accepted.good() || listener.holds.is_some()
    }

    /// Returns the names of the keys that it presents to clients and backends.
    pub(crate) fn keys(&self) -> BTreeSet<String> {
        let served = self.listeners.iter().filter(|it| it.is_served());
        let terminations = served.filter_map(|listener| listener.tls.as_ref());
        let keys = terminations.flat_map(|tls| &tls.keys);
        keys.chain(&self.client_key).cloned().collect()
    }
}
