//! Conditions of XBackends and XBackendTrafficPolicies, for each Gateway that sends traffic to
//! them.

use std::collections::BTreeMap;

use super::policies::{ancestor, backends, of_backends};
use crate::backends::PolicedBackend;
use crate::backends::traffic_policies::XTrafficPolicies;
use crate::backends::x_backends::XBackends;
use crate::context::ResolveContext;
use crate::routes::Routes;
use crate::routes::attachments::AttachedGateway;
use crate::routes::sessions;
use sesame_kinds::api::{Metadata, NamespacedName, SessionPersistence};
use sesame_kinds::status::{Condition, PolicyStatus, Reason, Verdict};
use sesame_kinds::world::Kind;

type Statuses = BTreeMap<NamespacedName, PolicyStatus>;

pub(crate) fn statuses(
    gateways: &[AttachedGateway<'_, '_>],
    routes: &Routes<'_>,
    x_backends: &XBackends<'_>,
    controller_name: &str,
) -> Statuses {
    let mut statuses = Statuses::new();
    // Gateways are sorted by name, so the entries are sorted too.
    for gateway in gateways {
        for backend in backends(gateway, routes) {
            let PolicedBackend::XBackend(name) = backend else {
                continue;
            };
            if let Some(found) = x_backends.get(name) {
                let metadata = &found.object.metadata;
                let message = "the selected Pods receive traffic";
                let mut verdict = found.accepted.clone();
                let session = found.object.spec.session_persistence.as_ref();
                check_session(session, &mut verdict);
                let condition = accepted(metadata, &verdict, message);
                let ancestor = ancestor(&gateway.gateway.name(), controller_name, vec![condition]);
                let status = statuses.entry(metadata.key()).or_default();
                status.ancestors.push(ancestor);
            }
        }
    }
    statuses
}

pub(crate) fn of_policies(
    gateways: &[AttachedGateway<'_, '_>],
    routes: &Routes<'_>,
    policies: &XTrafficPolicies<'_>,
    cx: &ResolveContext<'_, '_>,
) -> Statuses {
    let judged = of_backends(gateways, routes, |backend| match backend {
        PolicedBackend::WithTls(_) | PolicedBackend::WithSettings(_) => Vec::new(),
        PolicedBackend::WithTraffic(name) => policies.targets.judge(Kind::Service, name, cx.world),
        PolicedBackend::XBackend(name) => policies.targets.judge(Kind::XBackend, name, cx.world),
    });
    let mut statuses = Statuses::new();
    for (gateway, place, mut verdict) in judged {
        let Some(policy) = policies.get(place) else {
            continue;
        };
        verdict.add(&policy.accepted);
        let metadata = &policy.object.metadata;
        let session = policy.object.spec.session_persistence.as_ref();
        check_session(session, &mut verdict);
        let message = match session {
            Some(_) => "session persistence applies to rules with a single backend",
            None => "the policy has no effect: no setting is configured",
        };
        let condition = accepted(metadata, &verdict, message);
        let ancestor = ancestor(&gateway, &cx.options.controller_name, vec![condition]);
        let status = statuses.entry(metadata.key()).or_default();
        status.ancestors.push(ancestor);
    }
    statuses
}

/// Rejects settings that would be invalid in every rule.
fn check_session(session: Option<&SessionPersistence>, verdict: &mut Verdict) {
    // The route and rule index only determine the default session name.
    let fault = session.and_then(|session| sessions::read(session, "", 0).err());
    let fault = fault.map(|why| format!("spec.{why}"));
    verdict.refuse_if(Reason::UnsupportedValue, fault);
}

fn accepted(metadata: &Metadata, verdict: &Verdict, message: &str) -> Condition {
    let message = metadata.unknown.append_harmless(message, "", None);
    verdict.accepted(&message, metadata.generation)
}
