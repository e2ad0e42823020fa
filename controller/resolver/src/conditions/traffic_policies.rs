//! Conditions of TrafficPolicies and AccessPolicies, for each affected Gateway.

use std::collections::BTreeSet;

use super::policies::{StatusesOfKind, add_programmed, by_gateway};
use crate::context::{ResolveContext, ResolvedFor};
use crate::gateways::CheckedGateway;
use crate::policies::traffic::of_kind::PoliciesOfKind;
use crate::routes::Routes;
use crate::routes::attachments::AttachedGateway;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::Reason;
use sesame_kinds::world::Kind;
use sesame_proto::refusal;
use sesame_proto::schema::OidcLogin;

const UNKNOWN_FLEET: &str = "; no host of the Gateway has reported, so each host allows the whole of \
                             the limits with scope Fleet";

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
            let is_unserved = || {
                let login = (gateway.clone(), policy.metadata.key());
                policies.kind == Kind::AccessPolicy && cx.unserved_logins.contains(&login)
            };
            if is_unserved() {
                let most = OidcLogin::MAX_PER_GATEWAY;
                let why = format!(
                    "spec.oidc: the policy's namespace uses its share of the Gateway's {most} \
                     logins; requests that need this login get {}",
                    refusal::HTTP
                );
                accepted.refuse(Reason::Invalid, why);
            }
            let mut message = policy.message();
            if policy.limits_fleets() && !counts_hosts(gateways, &gateway, cx) {
                message.push_str(UNKNOWN_FLEET);
            }
            let outcome = (&accepted, message);
            add_programmed(&mut statuses, policy.metadata, &gateway, outcome, cx);
        }
    }
    statuses
}

/// Returns false if no host of the Gateway has ever reported. Always returns true outside a cluster,
/// where each host's settings contain the number of hosts.
fn counts_hosts(
    gateways: &[AttachedGateway<'_, '_>],
    name: &NamespacedName,
    cx: &ResolveContext<'_, '_>,
) -> bool {
    let mut gateways = gateways.iter().map(|it| it.gateway);
    let gateway = gateways.find(|it| it.name() == *name);
    let published = gateway.map_or_else(|| name.clone(), CheckedGateway::published_as);
    let hosts = cx.world.live_hosts.get(&published);
    cx.options.resolved_for == ResolvedFor::Host || hosts.is_some_and(|hosts| *hosts > 0)
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
