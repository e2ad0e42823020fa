//! Migrates a fleet between DaemonSets and a Deployment. The old workload is kept until the new one
//! serves.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::provision::Basis;
use crate::provision::kinds::{OwnedKey, OwnedKind};
use crate::provision::owned::{ExistingObject, OwnedObject};
use sesame_resolver::settings::GatewaySettings;

type Existing = BTreeMap<OwnedKey, ExistingObject>;

pub(crate) fn retained(
    basis: &Basis,
    wanted: &[OwnedObject],
    existing: &Existing,
) -> Vec<OwnedKey> {
    let is_wanted = |kind| wanted.iter().any(|object| object.key.0 == kind);
    let on_pods = is_wanted(OwnedKind::Deployment);
    let done = if on_pods {
        // Keep the old workload until the Service no longer has endpoints on nodes.
        pods_serve(basis, existing)
            && !existing
                .iter()
                .any(|(key, found)| is_endpoints(key, found, basis))
    } else {
        nodes_serve(basis, wanted, existing)
    };
    let other: &[OwnedKind] = match (done, on_pods) {
        (true, _) => &[],
        (false, true) => &[OwnedKind::DaemonSet],
        (false, false) => &[OwnedKind::Deployment, OwnedKind::PodDisruptionBudget],
    };
    let stay = existing.iter();
    let stay = stay.filter(|(key, found)| other.contains(&key.0) && found.is_owned_by(basis));
    stay.map(|(key, _)| key.clone()).collect()
}

fn is_endpoints(key: &OwnedKey, found: &ExistingObject, basis: &Basis) -> bool {
    key.0 == OwnedKind::EndpointSlice && found.is_owned_by(basis)
}

pub(crate) fn is_served_by_pods(
    basis: &Basis,
    settings: &GatewaySettings,
    existing: &Existing,
) -> bool {
    settings.is_on_pod_network() && pods_serve(basis, existing)
}

fn pods_serve(basis: &Basis, existing: &Existing) -> bool {
    let mut deployments = objects_of_kind(basis, existing, OwnedKind::Deployment);
    deployments.next().is_some_and(|deployment| {
        let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
        let ready = number(deployment, "availableReplicas");
        let updated = number(deployment, "updatedReplicas");
        is_observed(deployment) && wanted > 0 && ready >= wanted && updated >= wanted
    })
}

/// Requires available Pods on all scheduled nodes, and reports from at least as many nodes.
fn nodes_serve(basis: &Basis, wanted: &[OwnedObject], existing: &Existing) -> bool {
    let wanted = wanted
        .iter()
        .filter(|object| object.key.0 == OwnedKind::DaemonSet);
    let nodes = basis.hosts.values().filter_map(|host| host.node.as_ref());
    let nodes: BTreeSet<&String> = nodes.collect();
    wanted.into_iter().all(|object| {
        let found = existing
            .get(&object.key)
            .filter(|found| found.is_owned_by(basis));
        found.is_some_and(|ExistingObject { value, .. }| {
            let desired = number(value, "desiredNumberScheduled");
            is_observed(value)
                && desired > 0
                && number(value, "numberAvailable") >= desired
                && i64::try_from(nodes.len()).unwrap_or(i64::MAX) >= desired
        })
    })
}

fn objects_of_kind<'e>(
    basis: &'e Basis,
    existing: &'e Existing,
    kind: OwnedKind,
) -> impl Iterator<Item = &'e Value> {
    let all = existing.iter();
    let ours = all.filter(move |(key, found)| key.0 == kind && found.is_owned_by(basis));
    ours.map(|(_, found)| &found.value)
}

fn is_observed(object: &Value) -> bool {
    number(object, "observedGeneration") >= object["metadata"]["generation"].as_i64().unwrap_or(0)
}

fn number(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or(0)
}
