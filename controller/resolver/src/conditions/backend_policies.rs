//! Conditions of BackendPolicies, for each Gateway that sends traffic to a target.

use super::policies::{StatusesOfKind, add_programmed, of_backends};
use crate::backends::{Backends, PolicedBackend};
use crate::context::ResolveContext;
use crate::routes::Routes;
use crate::routes::attachments::AttachedGateway;
use sesame_kinds::status::Reason;
use sesame_kinds::world::Kind;

pub(crate) fn statuses(
    gateways: &[AttachedGateway<'_, '_>],
    routes: &Routes<'_>,
    backends: &Backends<'_>,
    cx: &ResolveContext<'_, '_>,
) -> StatusesOfKind {
    let policies = &backends.checked().backend_policies;
    let judge = |kind, name| policies.targets.judge(kind, name, cx.world);
    let affected = of_backends(gateways, routes, |backend| match backend {
        PolicedBackend::WithTls(_) | PolicedBackend::WithTraffic(_) => Vec::new(),
        PolicedBackend::WithSettings(name) => judge(Kind::Service, name),
        PolicedBackend::XBackend(name) => judge(Kind::XBackend, name),
    });
    let mut statuses = StatusesOfKind::new();
    for (gateway, place, mut accepted) in affected {
        let Some(policy) = policies.get(place) else {
            continue;
        };
        accepted.add(&policy.accepted);
        for why in backends.unfit(place) {
            accepted.refuse(Reason::UnsupportedValue, why);
        }
        let outcome = (&accepted, "the policy applies".to_owned());
        add_programmed(
            &mut statuses,
            &policy.object.metadata,
            &gateway,
            outcome,
            cx,
        );
    }
    statuses
}
