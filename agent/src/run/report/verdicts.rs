//! The verdicts of this host's Envoys, added to the statuses. Pure.

use std::collections::{BTreeMap, BTreeSet};

use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::MergedGateway;
use sesame_gateway_api::status::{
    Programmed, RefusedRules, Statuses, program, program_listener_set, refuse_rules,
};
use sesame_gateway_api::world::{Kind, ObjectKey};
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::{Listener, Snapshot};

use super::compose::reachable;
use crate::run::engine::SourceState;
use crate::run::observed::Observed;
use crate::run::target::Target;

/// Adds the verdicts of this host's Envoys to the statuses, which are those of the newest targets.
pub(super) fn with_hosts(
    mut statuses: Statuses,
    merged: &BTreeMap<NamespacedName, MergedGateway>,
    known: &SourceState,
    observed: &BTreeMap<NamespacedName, Observed>,
    host_addresses: &[String],
) -> Statuses {
    let pending: BTreeMap<&NamespacedName, PendingChange> = known
        .gateways
        .iter()
        .filter_map(|(name, target)| Some((name, PendingChange::of(target, observed.get(name)?)?)))
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
        // Envoy may still serve only other objects of the same merged Gateway.
        let served = served.get(published_as);
        let lacks = served.is_some_and(|served| !served.contains(&object.to_string()));
        let pending = pending.get(published_as);
        if lacks || pending.is_some_and(|change| change.affects_listeners_of(&object)) {
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

/// The served target and the newest one, while they differ. Route tables and endpoints are left out:
/// they change often, and `Programmed` is about listeners.
struct PendingChange {
    served: Snapshot,
    newest: Snapshot,
}

impl PendingChange {
    /// Returns `None` if Envoy serves the newest target, whole or reduced, or has none yet.
    fn of(newest: &Target, observed: &Observed) -> Option<Self> {
        let served = observed.applied_for.as_ref()?;
        (served.revision() != newest.revision()).then(|| Self {
            served: served.encoded.without_route_tables_and_endpoints(),
            newest: newest.encoded.without_route_tables_and_endpoints(),
        })
    }

    /// Returns whether the listeners of a Gateway or ListenerSet differ.
    fn affects_listeners_of(&self, object: &ObjectKey) -> bool {
        let object = object.to_string();
        let Self { served, newest } = self;
        listeners_of(served, &object).ne(listeners_of(newest, &object))
    }
}

/// Returns the listeners of an object, each with its port and transport.
fn listeners_of<'s>(
    snapshot: &'s Snapshot,
    object: &str,
) -> impl Iterator<Item = (u32, i32, &'s Listener)> {
    let all = snapshot.ports.iter().flat_map(|port| {
        let listeners = port.listeners.iter();
        listeners.map(move |listener| (port.port, port.transport, listener))
    });
    all.filter(move |(_, _, listener)| {
        let provenance = Provenance::parse(&listener.name);
        provenance.is_ok_and(|it| it.object().to_string() == object)
    })
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
