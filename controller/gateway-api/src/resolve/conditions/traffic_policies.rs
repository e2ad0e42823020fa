//! Conditions of TrafficPolicies and AccessPolicies, for each affected Gateway.

use std::collections::BTreeSet;

use super::policies::{StatusesOfKind, add_programmed, by_gateway};
use crate::resolve::context::ResolveContext;
use crate::resolve::policies::traffic::of_kind::PoliciesOfKind;
use crate::resolve::routes::Routes;
use crate::resolve::routes::attachments::AttachedGateway;
use crate::world::Kind;

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
            let outcome = (&accepted, policy.message());
            add_programmed(&mut statuses, policy.metadata, &gateway, outcome, cx);
        }
    }
    statuses
}

/// A policy may target the Gateway, its ListenerSets, or the routes that attach to them.
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
