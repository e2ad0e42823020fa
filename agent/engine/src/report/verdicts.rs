//! Records in the statuses whether Envoy on this host has accepted each object.

use std::collections::{BTreeMap, BTreeSet};

use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{
    Programmed, RefusedRules, Statuses, program, program_listener_set, program_policy, refuse_rules,
};
use sesame_kinds::world::Kind;
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::{Listener, Snapshot};
use sesame_resolver::MergedGateway;

use super::compose::reachable;
use crate::engine::SourceState;
use crate::observed::Observed;
use crate::target::Target;

/// An Envoy may serve an older target than the statuses describe.
pub(super) fn with_hosts(
    mut statuses: Statuses,
    merged: &BTreeMap<NamespacedName, MergedGateway>,
    known: &SourceState,
    observed: &BTreeMap<NamespacedName, Observed>,
    host_addresses: &[String],
) -> Statuses {
    let programs = !(statuses.gateways.is_empty() && statuses.listener_sets.is_empty());
    let newest = known.gateways.iter().filter(|_| programs);
    let pending: BTreeMap<&NamespacedName, BTreeSet<String>> = newest
        .filter_map(|(name, target)| Some((name, pending(target, observed.get(name)?)?)))
        .collect();
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
        let object = object.to_string();
        // Envoy may have an older target, without this object.
        let served = served.get(published_as);
        let lacks = served.is_some_and(|served| !served.contains(&object));
        let pending = pending.get(published_as);
        if lacks || pending.is_some_and(|pending| pending.contains(&object)) {
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
    // A policy may affect any part of a target, so comparing listeners is not enough.
    let is_current = |gateway: &NamespacedName| {
        let name = published_as(merged, gateway);
        let newest = known.gateways.get(name).map(|it| it.revision());
        let served = observed.get(name).and_then(|it| it.applied_for.as_ref());
        served.map(|it| it.revision()) == newest
    };
    program_policies(&mut statuses, |gateway| {
        let mut programmed = programmed(gateway, Kind::Gateway, gateway)?;
        if !is_current(gateway) {
            programmed.hosts_ready = 0;
        }
        Some(programmed)
    });
    refuse_routes(&mut statuses, merged, observed);
    statuses
}

fn refuse_routes(
    statuses: &mut Statuses,
    merged: &BTreeMap<NamespacedName, MergedGateway>,
    observed: &BTreeMap<NamespacedName, Observed>,
) {
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
}

/// `programmed` returns the result for an ancestor Gateway.
fn program_policies(
    statuses: &mut Statuses,
    programmed: impl Fn(&NamespacedName) -> Option<Programmed>,
) {
    let policies = statuses.policies.values_mut();
    for ancestor in policies.flat_map(|status| &mut status.ancestors) {
        if let Some(programmed) = ancestor.gateway().as_ref().and_then(&programmed) {
            program_policy(&mut ancestor.conditions, &programmed);
        }
    }
}

/// Merged Gateways are published under a shared name.
pub(super) fn published_as<'m>(
    merged: &'m BTreeMap<NamespacedName, MergedGateway>,
    gateway: &'m NamespacedName,
) -> &'m NamespacedName {
    merged.get(gateway).map_or(gateway, |it| &it.published_as)
}

/// Returns `None` if Envoy serves the newest target, even reduced, or has no target yet. Ignores
/// route tables and endpoints, because `Programmed` describes listeners only.
fn pending(newest: &Target, observed: &Observed) -> Option<BTreeSet<String>> {
    let served = observed.applied_for.as_ref()?;
    if served.revision() == newest.revision() {
        return None;
    }
    let served = listeners_by_object(served.encoded.rest());
    let mut newest = listeners_by_object(newest.encoded.rest());
    let changed = served.into_iter().filter_map(|(object, listeners)| {
        (newest.remove(&object).as_ref() != Some(&listeners)).then_some(object)
    });
    let mut changed: BTreeSet<String> = changed.collect();
    changed.extend(newest.into_keys());
    Some(changed)
}

fn listeners_by_object(snapshot: &Snapshot) -> BTreeMap<String, Vec<(u32, i32, &Listener)>> {
    let mut by_object = BTreeMap::<_, Vec<_>>::new();
    for port in &snapshot.ports {
        for listener in &port.listeners {
            if let Ok(provenance) = Provenance::parse(&listener.name) {
                let entry = by_object.entry(provenance.object().to_string());
                let listener = (port.port, port.transport, listener);
                entry.or_default().push(listener);
            }
        }
    }
    by_object
}

fn served(observed: &Observed) -> BTreeSet<String> {
    let applied = observed.applied_for.as_ref();
    let ports = applied
        .iter()
        .flat_map(|target| &target.encoded.rest().ports);
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
