//! Checks that derive findings from the facts about a host. Does no I/O.

mod agent;
mod directories;
mod envoy;
mod limits;
mod network;
mod system;
#[cfg(test)]
mod tests;

use super::HostFinding;
use super::facts::HostFacts;

pub(super) fn all(facts: &HostFacts) -> Vec<HostFinding> {
    let checks: [Vec<HostFinding>; 14] = [
        vec![agent::settings(facts), agent::agent(facts)],
        agent::user(facts).into_iter().collect(),
        directories::all(facts),
        directories::disks(facts),
        vec![envoy::envoy(facts), envoy::hot_restart(facts)],
        network::ports(facts),
        vec![network::low_ports(facts), network::migration(facts)],
        network::steering(facts).into_iter().collect(),
        limits::all(facts),
        vec![system::clock(facts)],
        system::certificates(facts),
        system::cluster(facts),
        system::units(facts),
        system::confinement(facts).into_iter().collect(),
    ];
    checks.into_iter().flatten().collect()
}
