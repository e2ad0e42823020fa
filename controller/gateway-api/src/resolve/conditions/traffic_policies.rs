//! Conditions of TrafficPolicies and AccessPolicies, with one status entry for each Gateway whose
//! requests are affected.

use std::collections::BTreeSet;

use super::policies::{StatusesOfKind, add_programmed, by_gateway};
use crate::resolve::context::ResolveContext;
use crate::resolve::policies::traffic::of_kind::PoliciesOfKind;
use crate::resolve::routes::Routes;
use crate::resolve::routes::attachments::AttachedGateway;
use crate::world::Kind;

/// Returns the statuses of all policies of one kind that affect a Gateway's requests.
pub(crate) fn statuses(
    gateways: &[AttachedGateway<'_, '_>],
    routes: &Routes<'_>,
    policies: &PoliciesOfKind<'_>,
    cx: &ResolveContext<'_, '_>,
) -> StatusesOfKind {
    let affected = by_gateway(gateways, |gateway| {
        let targets = targets(gateway, routes).into_iter();
        targets
            .flat_map(|(kind, namespace, name)| policies.judge(kind, (namespace, name), cx.world))
    });
    let mut statuses = StatusesOfKind::new();
    for (gateway, place, mut accepted) in affected {
        if let Some(policy) = policies.get(place) {
            accepted.add(&policy.accepted);
            let told = (&accepted, policy.message());
            add_programmed(&mut statuses, policy.metadata, &gateway, told, cx);
        }
    }
    statuses
}

/// Returns the objects through which a policy may affect the Gateway's requests: the Gateway, its
/// ListenerSets, and the routes that attach to any of them.
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
