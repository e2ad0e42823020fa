//! Logs changes of the hosts of a Gateway.

use std::collections::BTreeSet;

use super::fleet::{FOREIGN_ADDRESS, FleetSummary};
use sesame_gateway_api::api::NamespacedName;

/// Logs lost and returned hosts, and ignored addresses.
pub(super) fn log(gateway: &NamespacedName, before: &FleetSummary, now: &FleetSummary) {
    let foreign = &now.foreign_addresses;
    if *foreign != before.foreign_addresses && !foreign.is_empty() {
        let addresses = foreign.join(", ");
        tracing::warn!(%gateway, addresses, "addresses that hosts report are left out: {FOREIGN_ADDRESS}");
    }
    let sets = |summary: &'_ FleetSummary| summary.lost.iter().cloned().collect::<BTreeSet<_>>();
    let (were, are) = (sets(before), sets(now));
    for host in are.difference(&were) {
        let seconds = now.lost_after.as_secs();
        tracing::warn!(%gateway, host, seconds, "a host is lost: nothing was heard of it for that long, and its addresses leave the Gateway");
    }
    for host in were.difference(&are) {
        tracing::info!(%gateway, host, "a host that was lost is heard of again, or gone");
    }
}
