//! Conditions of TrafficPolicies: an entry for each Gateway whose requests they affect.

use std::collections::{BTreeMap, BTreeSet};

use super::policies::ancestor;
use super::programmed;
use crate::api::NamespacedName;
use crate::resolve::context::ResolveContext;
use crate::resolve::policies::traffic::TrafficPolicies;
use crate::resolve::routes::Routes;
use crate::resolve::routes::attachments::AttachedGateway;
use crate::status::{PolicyStatus, Verdict};
use crate::world::Kind;

/// Returns the statuses of all policies that affect some Gateway.
pub(crate) fn statuses(
    gateways: &[AttachedGateway<'_, '_>],
    routes: &Routes<'_>,
    policies: &TrafficPolicies<'_>,
    cx: &ResolveContext<'_, '_>,
) -> BTreeMap<NamespacedName, PolicyStatus> {
    let mut statuses: BTreeMap<NamespacedName, PolicyStatus> = BTreeMap::new();
    // The Gateways are in the order of their names.
    for gateway in gateways {
        let mut verdicts: BTreeMap<usize, Verdict> = BTreeMap::new();
        for (kind, namespace, name) in targets(gateway, routes) {
            for (place, fault) in policies.judge(kind, (namespace, name), cx.world) {
                let verdict = verdicts.entry(place).or_default();
                if let Some((reason, why)) = fault {
                    verdict.refuse(reason, why);
                }
            }
        }
        for (place, mut accepted) in verdicts {
            let Some(policy) = policies.get(place) else {
                continue;
            };
            accepted.add(&policy.accepted);
            let metadata = &policy.object.metadata;
            let generation = metadata.generation;
            let message = metadata.unknown.beside("the policy applies", "", None);
            let mut conditions = vec![accepted.accepted(&message, generation)];
            if accepted.good() {
                conditions.push(programmed(None, generation));
            }
            let status = statuses.entry(metadata.key()).or_default();
            let gateway = gateway.gateway.name();
            let ancestor = ancestor(&gateway, &cx.options.controller_name, conditions);
            status.ancestors.push(ancestor);
        }
    }
    statuses
}

/// Returns the objects that policies for the Gateway's requests may target: itself, its
/// ListenerSets, and the routes that attach to either.
fn targets<'r>(
    gateway: &AttachedGateway<'_, 'r>,
    routes: &'r Routes<'_>,
) -> BTreeSet<(Kind, &'r str, &'r str)> {
    let checked = gateway.gateway;
    let own = &checked.owner;
    let mut targets = BTreeSet::from([(own.kind, own.namespace, own.name)]);
    let sets = checked.sets.iter().map(|set| &set.owner);
    targets.extend(sets.map(|set| (set.kind, set.namespace, set.name)));
    for attached in &gateway.listeners {
        let attachments = attached.attachments.iter();
        let attached = attachments.filter_map(|it| routes.get(it.route));
        targets.extend(attached.map(|route| {
            let metadata = route.metadata;
            let (namespace, name) = (metadata.namespace.as_str(), metadata.name.as_str());
            (route.object.kind, namespace, name)
        }));
    }
    targets
}
