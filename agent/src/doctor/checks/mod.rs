//! The checks: facts in, findings out. Pure.

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

/// Runs all of them.
pub(super) fn all(facts: &HostFacts) -> Vec<HostFinding> {
    let mut all = Vec::new();
    all.push(agent::settings(facts));
    all.push(agent::agent(facts));
    all.extend(directories::all(facts));
    all.extend(directories::disks(facts));
    all.push(envoy::envoy(facts));
    all.push(envoy::hot_restart(facts));
    all.extend(network::ports(facts));
    all.push(network::low_ports(facts));
    all.push(network::migration(facts));
    all.push(network::steering(facts));
    all.push(limits::instances(facts));
    all.push(limits::watches(facts));
    all.push(limits::memory(facts));
    all.push(limits::tasks(facts));
    all.push(limits::open_files(facts));
    all.push(system::clock(facts));
    all.extend(system::certificates(facts));
    all.extend(system::cluster(facts));
    all.extend(system::units(facts));
    all.extend(system::confinement(facts));
    all
}
