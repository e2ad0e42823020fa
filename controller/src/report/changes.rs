//! Logs changes to a Gateway's hosts.

use std::collections::BTreeSet;

use super::fleet::{FOREIGN_ADDRESS, FleetSummary};
use sesame_kinds::api::NamespacedName;

pub(super) fn log(gateway: &NamespacedName, before: &FleetSummary, now: &FleetSummary) {
    let foreign = &now.foreign_addresses;
    if *foreign != before.foreign_addresses && !foreign.is_empty() {
        let addresses = foreign.join(", ");
        tracing::warn!(%gateway, addresses, "ignoring addresses that hosts report: \
            {FOREIGN_ADDRESS}");
    }
    let sets = |summary: &'_ FleetSummary| summary.lost.iter().cloned().collect::<BTreeSet<_>>();
    let (were, are) = (sets(before), sets(now));
    for host in are.difference(&were) {
        let seconds = now.lost_after.as_secs();
        tracing::warn!(%gateway, host, seconds, "a host is lost: it has not reported for that \
            long, and its addresses are removed from the Gateway");
    }
    for host in were.difference(&are) {
        tracing::info!(%gateway, host, "a host is no longer lost: it reports again or was removed");
    }
}
