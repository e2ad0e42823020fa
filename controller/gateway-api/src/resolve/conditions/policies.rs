//! What the status of a BackendTLSPolicy says: an entry for each Gateway that sends to a Service it is for.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::{GATEWAY_GROUP, NamespacedName, ParentRef};
use crate::resolve::backends::tls_policies::Policies;
use crate::resolve::context::Context;
use crate::resolve::gateways::GatewayState;
use crate::resolve::routes::Routes;
use crate::status::{ConditionType, PolicyAncestorStatus, PolicyStatus, Reason, Verdict};
use crate::world::{Kind, ObjectKey};

/// What the API's schema allows. Who writes the status leaves out those that are not in it yet.
const MAX_ANCESTORS: usize = 16;

/// The statuses of all policies that some Gateway heeds.
pub(crate) fn all(
    gateways: &[GatewayState<'_>],
    routes: &Routes,
    policies: &Policies<'_>,
    cx: &mut Context<'_, '_>,
) -> BTreeMap<NamespacedName, PolicyStatus> {
    let mut statuses: BTreeMap<NamespacedName, PolicyStatus> = BTreeMap::new();
    // They are in the order of their names.
    for gateway in gateways {
        let mut verdicts: BTreeMap<usize, Verdict> = BTreeMap::new();
        for service in services(gateway, routes) {
            let name = (service.namespace.as_str(), service.name.as_str());
            for (policy, fault) in policies.claims(name, cx.world) {
                let verdict = verdicts.entry(policy).or_default();
                if let Some((reason, why)) = fault {
                    verdict.refuse(reason, why);
                }
            }
        }
        for (index, mut accepted) in verdicts {
            let Some(policy) = policies.get(index) else {
                continue;
            };
            if let Some((reason, why)) = policy.accepted.fault() {
                accepted.refuse(reason, why);
            }
            let status = statuses.entry(policy.object.metadata.key()).or_default();
            let generation = policy.object.metadata.generation;
            status.ancestors.push(PolicyAncestorStatus {
                ancestor_ref: ParentRef {
                    group: Some(GATEWAY_GROUP.to_owned()),
                    kind: Some(Kind::Gateway.as_str().to_owned()),
                    namespace: Some(gateway.owner.namespace.to_owned()),
                    name: gateway.owner.name.to_owned(),
                    ..ParentRef::default()
                },
                controller_name: cx.options.controller_name.clone(),
                conditions: vec![
                    accepted.condition(
                        ConditionType::Accepted,
                        Reason::Accepted,
                        &policy
                            .object
                            .metadata
                            .unknown
                            .beside("the policy applies", "", None),
                        generation,
                    ),
                    policy.resolved.condition(
                        ConditionType::ResolvedRefs,
                        Reason::ResolvedRefs,
                        "all references are resolved",
                        generation,
                    ),
                ],
            });
        }
    }
    for (name, status) in &statuses {
        let count = status.ancestors.len();
        if count > MAX_ANCESTORS {
            let object = ObjectKey {
                kind: Kind::BackendTlsPolicy,
                name: name.clone(),
            };
            let message = format!(
                "the policy applies for {count} Gateways, but its status in a cluster has no room for more than \
                 {MAX_ANCESTORS}, and says nothing of those that came last"
            );
            cx.problems.add(object, message);
        }
    }
    statuses
}

/// The Services with policies that routes of the Gateway send to.
fn services<'r>(gateway: &GatewayState<'_>, routes: &'r Routes) -> BTreeSet<&'r NamespacedName> {
    let mut services = BTreeSet::new();
    for listener in &gateway.listeners {
        for attachment in &listener.attachments {
            let Some(route) = routes.get(attachment.route) else {
                continue;
            };
            // What is passed through is not ours to encrypt.
            if route.object.kind != Kind::TlsRoute || listener.tls.is_some() {
                services.extend(&route.policed);
            }
        }
    }
    services
}
