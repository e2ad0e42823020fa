//! Each Gateway's hosts, for its Service and for rate limits that hosts divide.

use std::collections::BTreeMap;

use super::Agents;
use crate::statuses::HostsByGateway;
use sesame_kinds::api::NamespacedName;

impl Agents {
    /// Returns `None` if unknown or unchanged since the last call.
    pub(in crate::report) fn take_endpoints(&mut self) -> Option<HostsByGateway> {
        if !self.listed() || !std::mem::take(&mut self.endpoints_changed) {
            return None;
        }
        let serving = self.by_gateway.keys().filter_map(|name| {
            let mut gateways = self.members.gateways_of(name).into_iter();
            let fleet = gateways.find_map(|gateway| self.fleets.get(&gateway))?;
            (!fleet.endpoints.is_empty()).then(|| (name.clone(), fleet.endpoints.clone()))
        });
        Some(Some(serving.collect()))
    }

    /// Returns the number of live hosts by published Gateway, or `None` if unknown or unchanged since
    /// the last call.
    pub(in crate::report) fn take_live_hosts(&mut self) -> Option<BTreeMap<NamespacedName, u32>> {
        if !self.listed || !self.unsummed.is_empty() || !std::mem::take(&mut self.live_changed) {
            return None;
        }
        let live = self.by_gateway.keys().filter_map(|name| {
            let mut gateways = self.members.gateways_of(name).into_iter();
            let fleet = gateways.find_map(|gateway| self.fleets.get(&gateway))?;
            Some((name.clone(), fleet.live))
        });
        Some(live.collect())
    }
}
