//! Conditions of BackendPolicies: an entry for each Gateway that sends to a target.

use std::collections::BTreeMap;

use super::policies::{ancestor, by_gateway};
use super::programmed;
use crate::api::NamespacedName;
use crate::resolve::backends::{Backends, PolicedBackend};
use crate::resolve::context::ResolveContext;
use crate::resolve::routes::Routes;
use crate::resolve::routes::attachments::AttachedGateway;
use crate::status::{PolicyStatus, Reason};
use crate::world::Kind;

/// Returns the statuses of all policies that affect some Gateway.
pub(crate) fn statuses(
    gateways: &[AttachedGateway<'_, '_>],
    routes: &Routes<'_>,
    backends: &Backends<'_>,
    cx: &ResolveContext<'_, '_>,
) -> BTreeMap<NamespacedName, PolicyStatus> {
    let policies = &backends.checked().backend_policies;
    let judged = by_gateway(gateways, routes, |backend| match backend {
        PolicedBackend::WithTls(_) | PolicedBackend::WithTraffic(_) => Vec::new(),
        PolicedBackend::WithSettings(name) => policies.judge(Kind::Service, name, cx.world),
        PolicedBackend::XBackend(name) => policies.judge(Kind::XBackend, name, cx.world),
    });
    let mut statuses: BTreeMap<NamespacedName, PolicyStatus> = BTreeMap::new();
    for (gateway, place, mut accepted) in judged {
        let Some(policy) = policies.get(place) else {
            continue;
        };
        accepted.add(&policy.accepted);
        for why in backends.unfit(place) {
            accepted.refuse(Reason::UnsupportedValue, why);
        }
        let metadata = &policy.object.metadata;
        let generation = metadata.generation;
        let message = metadata.unknown.beside("the policy applies", "", None);
        let mut conditions = vec![accepted.accepted(&message, generation)];
        if accepted.good() {
            conditions.push(programmed(None, generation));
        }
        let status = statuses.entry(metadata.key()).or_default();
        let ancestor = ancestor(&gateway, &cx.options.controller_name, conditions);
        status.ancestors.push(ancestor);
    }
    statuses
}
