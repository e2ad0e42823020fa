//! Conditions of BackendTLSPolicies: an entry for each Gateway that sends to a targeted Service.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::{GATEWAY_GROUP, NamespacedName, ParentRef};
use crate::resolve::backends::PolicedBackend;
use crate::resolve::backends::tls_policies::Policies;
use crate::resolve::context::ResolveContext;
use crate::resolve::routes::Routes;
use crate::resolve::routes::attachments::AttachedGateway;
use crate::status::{Condition, Grounds, PolicyAncestorStatus, PolicyStatus, Verdict};
use crate::world::{Kind, ObjectKey};

/// Maximum number of ancestors, set by the API's schema. The writer of a status drops new ones
/// beyond it.
const MAX_ANCESTORS: usize = 16;

type StatusesOfKind = BTreeMap<NamespacedName, PolicyStatus>;

/// Returns the statuses of all kinds of policies by kind and name.
pub(crate) fn of_all_kinds<const N: usize>(
    kinds: [(Kind, StatusesOfKind); N],
) -> BTreeMap<ObjectKey, PolicyStatus> {
    let kinds = kinds.into_iter();
    let statuses = kinds.flat_map(|(kind, statuses)| {
        let statuses = statuses.into_iter();
        statuses.map(move |(name, status)| (kind.named(name), status))
    });
    statuses.collect()
}

/// Returns the statuses of all policies that affect some Gateway.
pub(crate) fn statuses(
    gateways: &[AttachedGateway<'_, '_>],
    routes: &Routes<'_>,
    policies: &Policies<'_>,
    cx: &mut ResolveContext<'_, '_>,
) -> BTreeMap<NamespacedName, PolicyStatus> {
    let mut statuses: BTreeMap<NamespacedName, PolicyStatus> = BTreeMap::new();
    let judged = by_gateway(gateways, routes, |backend| match backend {
        PolicedBackend::WithTls(service) => policies.of_service(service, cx.world),
        _ => Vec::new(),
    });
    for (gateway, index, mut accepted) in judged {
        let Some(policy) = policies.get(index) else {
            continue;
        };
        accepted.add(&policy.accepted);
        let status = statuses.entry(policy.object.metadata.key()).or_default();
        let metadata = &policy.object.metadata;
        let generation = metadata.generation;
        let message = metadata.unknown.beside("the policy applies", "", None);
        let conditions = vec![
            accepted.accepted(&message, generation),
            policy.resolved.resolved_refs(generation),
        ];
        let controller_name = &cx.options.controller_name;
        let ancestor = ancestor(&gateway, controller_name, conditions);
        status.ancestors.push(ancestor);
    }
    for (name, status) in &statuses {
        let count = status.ancestors.len();
        if count > MAX_ANCESTORS {
            let object = Kind::BackendTlsPolicy.named(name.clone());
            let message = format!(
                "the policy applies to {count} Gateways, but its status in a cluster lists only \
                the first {MAX_ANCESTORS}"
            );
            cx.problems.add(object, message);
        }
    }
    statuses
}

/// Returns the places of the policies of a kind for each Gateway that sends to their targets, in the
/// order of the Gateways' names, with the errors there. `judge` returns the policies of a target.
pub(super) fn by_gateway<'r>(
    gateways: &[AttachedGateway<'_, 'r>],
    routes: &'r Routes<'_>,
    judge: impl Fn(PolicedBackend<'r>) -> Vec<(usize, Option<Grounds>)>,
) -> Vec<(NamespacedName, usize, Verdict)> {
    let mut all = Vec::new();
    for gateway in gateways {
        let mut verdicts: BTreeMap<usize, Verdict> = BTreeMap::new();
        for backend in backends(gateway, routes) {
            for (place, fault) in judge(backend) {
                let verdict = verdicts.entry(place).or_default();
                if let Some((reason, why)) = fault {
                    verdict.refuse(reason, why);
                }
            }
        }
        let verdicts = verdicts.into_iter();
        all.extend(verdicts.map(|(place, verdict)| (gateway.gateway.name(), place, verdict)));
    }
    all
}

/// Returns the entry for a Gateway in the status of a policy.
pub(super) fn ancestor(
    gateway: &NamespacedName,
    controller_name: &str,
    conditions: Vec<Condition>,
) -> PolicyAncestorStatus {
    let NamespacedName { namespace, name } = gateway.clone();
    PolicyAncestorStatus {
        ancestor_ref: ParentRef {
            group: Some(GATEWAY_GROUP.into()),
            kind: Some(Kind::Gateway.as_str().into()),
            namespace: Some(namespace.into()),
            name,
            ..ParentRef::default()
        },
        controller_name: controller_name.to_owned(),
        conditions,
    }
}

/// Returns the targets of the Gateway's routes, authorizations, spans and log lines whose status
/// names the Gateway.
pub(super) fn backends<'r>(
    gateway: &AttachedGateway<'_, 'r>,
    routes: &'r Routes<'_>,
) -> BTreeSet<PolicedBackend<'r>> {
    let mut backends = BTreeSet::new();
    backends.extend(gateway.gateway.tracing.policed.iter().copied());
    backends.extend(gateway.gateway.log.policed.iter().copied());
    for attached in &gateway.listeners {
        backends.extend(attached.listener.filters.policed.iter().copied());
        for attachment in &attached.attachments {
            let Some(route) = routes.get(attachment.route) else {
                continue;
            };
            // The Gateway does not encrypt passed-through TLS.
            let is_passed = route.object.kind == Kind::TlsRoute && attached.listener.tls.is_none();
            let told = route.policed.iter().copied();
            backends
                .extend(told.filter(|it| !is_passed || !matches!(it, PolicedBackend::WithTls(_))));
        }
    }
    backends
}
