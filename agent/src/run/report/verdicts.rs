//! The verdicts of this host's Envoys, added to the statuses. Pure.

use std::collections::{BTreeMap, BTreeSet};

use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::MergedGateway;
use sesame_gateway_api::status::{
    Programmed, RefusedRules, Statuses, program, program_listener_set, refuse_rules,
};
use sesame_gateway_api::world::Kind;
use sesame_proto::provenance::Provenance;

use super::compose::reachable;
use crate::run::observed::Observed;

/// Adds the verdicts of this host's Envoys to the statuses.
pub(super) fn with_hosts(
    mut statuses: Statuses,
    merged: &BTreeMap<NamespacedName, MergedGateway>,
    observed: &BTreeMap<NamespacedName, Observed>,
    host_addresses: &[String],
) -> Statuses {
    let together: BTreeSet<&NamespacedName> = merged.values().map(|it| &it.published_as).collect();
    let served: BTreeMap<&NamespacedName, BTreeSet<String>> = together
        .into_iter()
        .filter_map(|name| Some((name, served(observed.get(name)?))))
        .collect();
    let programmed = |gateway: &NamespacedName, kind: Kind, name: &NamespacedName| {
        let published_as = published_as(merged, gateway);
        let object = kind.named(name.clone());
        let mut programmed =
            programmed(observed.get(published_as)?, host_addresses).of_object(&object);
        // Envoy may still serve only other objects of the same merged Gateway.
        let served = served.get(published_as);
        if served.is_some_and(|served| !served.contains(&object.to_string())) {
            programmed.hosts_ready = 0;
        }
        Some(programmed)
    };
    for (name, status) in &mut statuses.gateways {
        if let Some(programmed) = programmed(name, Kind::Gateway, name) {
            program(status, &programmed);
        }
    }
    for (name, status) in &mut statuses.listener_sets {
        if let Some(programmed) = programmed(&status.gateway, Kind::ListenerSet, name) {
            program_listener_set(status, &programmed);
        }
    }
    for (gateway, observed) in observed {
        for (route, affected) in &observed.affected.routes {
            let found = statuses
                .routes
                .iter_mut()
                .find(|(key, _)| key.to_string() == *route);
            if let Some((key, status)) = found {
                let refused = RefusedRules {
                    rules: affected.rules.clone(),
                    backends: affected.shares.clone(),
                    works: affected.works,
                };
                let members = merged.iter().filter(|(_, it)| it.published_as == *gateway);
                for gateway in members.map(|(name, _)| name).chain([gateway]) {
                    refuse_rules(status, &key.name.namespace, gateway, &refused);
                }
            }
        }
    }
    statuses
}

/// Returns the name under which a Gateway is published.
pub(super) fn published_as<'m>(
    merged: &'m BTreeMap<NamespacedName, MergedGateway>,
    gateway: &'m NamespacedName,
) -> &'m NamespacedName {
    merged.get(gateway).map_or(gateway, |it| &it.published_as)
}

/// Returns the Gateways and ListenerSets that have listeners in the target that Envoy has accepted.
fn served(observed: &Observed) -> BTreeSet<String> {
    let applied = observed.applied_for.as_ref();
    let snapshot = applied.map(|target| target.encoded.without_route_tables());
    let ports = snapshot.iter().flat_map(|snapshot| &snapshot.ports);
    let names = ports.flat_map(|port| &port.listeners);
    let objects = names.filter_map(|listener| {
        let provenance = Provenance::parse(&listener.name).ok()?;
        Some(provenance.object().to_string())
    });
    objects.collect()
}

fn programmed(observed: &Observed, host_addresses: &[String]) -> Programmed {
    Programmed {
        addresses: reachable(observed.addresses.iter().copied(), host_addresses),
        hosts_ready: u32::from(observed.live && observed.applied.is_some()),
        hosts: 1,
        refused_listeners: observed.all_refused(),
        unshown_certificates: observed.all_unshown(),
        unusable_addresses: observed.unusable_addresses.clone(),
        awaited: None,
        notes: Vec::new(),
    }
}
