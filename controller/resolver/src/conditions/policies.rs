//! Conditions of policies.

use std::collections::{BTreeMap, BTreeSet};

use super::ingresses::reference;
use crate::backends::tls_policies::Policies;
use crate::backends::{Backends, CheckedBackends, PolicedBackend};
use crate::context::ResolveContext;
use crate::gateways::CheckedGateway;
use crate::gateways::mesh_policies::MeshPolicies;
use crate::gateways::mesh_trust::MeshTrust;
use crate::gateways::telemetry_policies::TelemetryPolicies;
use crate::policies::traffic::TrafficPolicies;
use crate::routes::Routes;
use crate::routes::attachments::AttachedGateway;
use sesame_kinds::api::{Metadata, NamespacedName};
use sesame_kinds::status::{Condition, Grounds, PolicyAncestorStatus, PolicyStatus, Verdict};
use sesame_kinds::world::{Kind, ObjectKey};

/// Maximum number of ancestors, from the API schema. Excess entries are dropped when the status is
/// written.
const MAX_ANCESTORS: usize = 16;

pub(super) type StatusesOfKind = BTreeMap<NamespacedName, PolicyStatus>;

pub(crate) struct PolicyInput<'a, 'w> {
    pub(crate) attached: &'a [AttachedGateway<'a, 'w>],
    pub(crate) gateways: &'a [CheckedGateway<'w>],
    pub(crate) routes: &'a Routes<'w>,
    pub(crate) backends: &'a Backends<'w>,
    pub(crate) mesh_policies: &'a MeshPolicies<'w>,
    pub(crate) mesh_trust: &'a MeshTrust<'w>,
    pub(crate) telemetry_policies: &'a TelemetryPolicies<'w>,
    pub(crate) traffic_policies: &'a TrafficPolicies<'w>,
}

impl<'w> PolicyInput<'_, 'w> {
    pub(crate) fn statuses(
        &self,
        cx: &mut ResolveContext<'w, '_>,
    ) -> BTreeMap<ObjectKey, PolicyStatus> {
        let Self {
            attached,
            gateways,
            routes,
            backends,
            mesh_policies,
            mesh_trust,
            telemetry_policies,
            traffic_policies,
        } = *self;
        let CheckedBackends {
            tls_policies,
            traffic_policies: x_traffic_policies,
            backend_policies: _,
            x_backends,
        } = backends.checked();
        let tls_statuses = statuses(attached, routes, tls_policies, cx);
        let cx = &*cx;
        let name = cx.options.controller_name.as_str();
        let mesh_statuses =
            super::mesh_policies::statuses(gateways, mesh_policies, mesh_trust, name);
        let telemetry_statuses =
            super::telemetry_policies::statuses(gateways, telemetry_policies, name);
        let request_policies = [&traffic_policies.traffic, &traffic_policies.access];
        let [traffic_statuses, access_statuses] = request_policies
            .map(|policies| super::traffic_policies::statuses(attached, routes, policies, cx));
        let kinds: [(Kind, StatusesOfKind); 9] = [
            (Kind::BackendTlsPolicy, tls_statuses),
            (Kind::GatewayMeshPolicy, mesh_statuses),
            (
                Kind::MeshOcgPolicy,
                super::ocg_policies::statuses(mesh_trust, name),
            ),
            (Kind::XTelemetryPolicy, telemetry_statuses),
            (
                Kind::XBackend,
                super::x_backends::statuses(attached, routes, x_backends, name),
            ),
            (
                Kind::XBackendTrafficPolicy,
                super::x_backends::of_policies(attached, routes, x_traffic_policies, cx),
            ),
            (Kind::TrafficPolicy, traffic_statuses),
            (Kind::AccessPolicy, access_statuses),
            (
                Kind::BackendPolicy,
                super::backend_policies::statuses(attached, routes, backends, cx),
            ),
        ];
        let statuses = kinds.into_iter().flat_map(|(kind, statuses)| {
            let statuses = statuses.into_iter();
            statuses.map(move |(name, status)| (kind.named(name), status))
        });
        statuses.collect()
    }
}

fn statuses(
    gateways: &[AttachedGateway<'_, '_>],
    routes: &Routes<'_>,
    policies: &Policies<'_>,
    cx: &mut ResolveContext<'_, '_>,
) -> BTreeMap<NamespacedName, PolicyStatus> {
    let mut statuses: BTreeMap<NamespacedName, PolicyStatus> = BTreeMap::new();
    let judged = of_backends(gateways, routes, |backend| match backend {
        PolicedBackend::WithTls(service) => {
            policies.targets.judge(Kind::Service, service, cx.world)
        }
        _ => Vec::new(),
    });
    for (gateway, index, mut accepted) in judged {
        let Some(policy) = policies.get(index) else {
            continue;
        };
        accepted.add(&policy.accepted);
        let status = statuses.entry(policy.object.metadata.key()).or_default();
        let conditions = applied(&policy.object.metadata, &accepted, &policy.resolved);
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

/// Index of a policy, and the reason if it does not apply to a target.
pub(super) type PolicyOutcome = (usize, Option<Grounds>);

/// A Gateway, a policy's index, and the policy's errors for the Gateway.
pub(super) type AffectedGateway = (NamespacedName, usize, Verdict);

/// The result is sorted by Gateway name. `judge` returns each policy that affects a Gateway, once
/// per target.
pub(super) fn by_gateway<'g, 'a, 'w, J: Iterator<Item = PolicyOutcome>>(
    gateways: &'g [AttachedGateway<'a, 'w>],
    judge: impl Fn(&'g AttachedGateway<'a, 'w>) -> J,
) -> Vec<AffectedGateway> {
    let mut all = Vec::new();
    for gateway in gateways {
        let mut verdicts: BTreeMap<usize, Verdict> = BTreeMap::new();
        for (place, fault) in judge(gateway) {
            let verdict = verdicts.entry(place).or_default();
            if let Some((reason, why)) = fault {
                verdict.refuse(reason, why);
            }
        }
        let verdicts = verdicts.into_iter();
        all.extend(verdicts.map(|(place, verdict)| (gateway.gateway.name(), place, verdict)));
    }
    all
}

/// A policy for a backend affects all Gateways that send traffic to it.
pub(super) fn of_backends<'r>(
    gateways: &[AttachedGateway<'_, 'r>],
    routes: &'r Routes<'_>,
    judge: impl Fn(PolicedBackend<'r>) -> Vec<PolicyOutcome>,
) -> Vec<AffectedGateway> {
    by_gateway(gateways, |gateway| {
        backends(gateway, routes).into_iter().flat_map(&judge)
    })
}

/// `message` is reported if the policy is accepted. Programmed remains Unknown until a host
/// reports.
pub(super) fn add_programmed(
    statuses: &mut StatusesOfKind,
    policy: &Metadata,
    gateway: &NamespacedName,
    (accepted, message): (&Verdict, String),
    cx: &ResolveContext<'_, '_>,
) {
    let message = policy.unknown.append_harmless(&message, "", None);
    let mut conditions = vec![accepted.accepted(&message, policy.generation)];
    if accepted.good() {
        conditions.push(super::programmed(None, policy.generation));
    }
    let status = statuses.entry(policy.key()).or_default();
    let ancestor = ancestor(gateway, &cx.options.controller_name, conditions);
    status.ancestors.push(ancestor);
}

/// `accepted` and `resolved` may still contain a reason why the policy does not apply.
pub(super) fn applied(policy: &Metadata, accepted: &Verdict, resolved: &Verdict) -> Vec<Condition> {
    let message = policy
        .unknown
        .append_harmless("the policy applies", "", None);
    vec![
        accepted.accepted(&message, policy.generation),
        resolved.resolved_refs(policy.generation),
    ]
}

pub(super) fn ancestor(
    gateway: &NamespacedName,
    controller_name: &str,
    conditions: Vec<Condition>,
) -> PolicyAncestorStatus {
    PolicyAncestorStatus {
        ancestor_ref: reference(gateway.clone()),
        controller_name: controller_name.to_owned(),
        conditions,
    }
}

/// Returns the backends of the Gateway's routes, authorization filters, tracing and access log.
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
            // TLS settings have no effect with TLS passthrough.
            let is_passed = route.object.kind == Kind::TlsRoute && attached.listener.tls.is_none();
            let policed = route.policed.iter().copied();
            backends.extend(
                policed.filter(|it| !is_passed || !matches!(it, PolicedBackend::WithTls(_))),
            );
        }
    }
    backends
}
