//! Conditions of Gateways.

use super::{listener_sets, listeners};
use crate::gateways::CheckedGateway;
use crate::gateways::mesh::CheckedMesh;
use crate::gateways::mesh_trust::MeshTrust;
use crate::listeners::{CheckedListener, invalid};
use crate::policies::traffic::TrafficPolicies;
use crate::routes::attachments::AttachedGateway;
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, GOOD, GatewayStatus, Reason, Verdict,
};
use sesame_kinds::world::Kind;

pub(crate) fn status(
    attached: &AttachedGateway<'_, '_>,
    mesh_trust: &MeshTrust<'_>,
    policies: &TrafficPolicies<'_>,
) -> GatewayStatus {
    let gateway = attached.gateway;
    let generation = gateway.owner.generation;
    let verdict = gateway.verdict();
    let own = gateway.own_listeners();
    let mut resolved = gateway.resolved.clone();
    for listener in own {
        if let Some((_, message)) = listener.resolved.fault() {
            resolved.refuse(
                Reason::ListenersNotResolved,
                format!("listener {:?}: {message}", listener.spec.name),
            );
        }
    }
    let mut conditions = vec![
        accepted(gateway, &verdict),
        super::programmed(not_programmed(gateway, &verdict), generation),
        resolved.resolved_refs(generation),
    ];
    if gateway.frontend.insecure {
        conditions.push(Condition::new(
            ConditionType::InsecureFrontendValidationMode,
            ConditionStatus::True,
            Reason::ConfigurationChanged,
            "spec.tls.frontend allows clients without a valid certificate (AllowInsecureFallback)",
            generation,
        ));
    }
    conditions.extend(unassigned(gateway));
    conditions.extend(gateway.mesh.as_ref().map(|mesh| meshed(mesh, generation)));
    conditions.extend(mesh_trust.of_gateway(gateway, generation));
    let name = (gateway.owner.namespace, gateway.owner.name);
    conditions.extend(policies.affect(Kind::Gateway, name, generation));
    let unserved = unserved(gateway);
    GatewayStatus {
        addresses: Vec::new(),
        conditions,
        listeners: attached
            .listeners
            .iter()
            .take(own.len())
            .map(|listener| listeners::status(listener, generation, unserved))
            .collect(),
        attached_listener_sets: i32::try_from(listener_sets::attached(gateway)).unwrap_or(i32::MAX),
    }
}

fn accepted(gateway: &CheckedGateway<'_>, verdict: &Verdict) -> Condition {
    let generation = gateway.owner.generation;
    if verdict.good() && !gateway.passed_over.good() {
        return gateway.passed_over.accepted("", generation);
    }
    let append_harmless = |message| {
        gateway
            .owner
            .unknown
            .append_harmless(message, "listeners", None)
    };
    let own = gateway.own_listeners();
    let mut lacking = Vec::new();
    let mut lacks = None;
    if own.iter().any(|l| !l.accepted.good()) {
        lacks = Some(Reason::ListenersNotValid);
        lacking.push(format!(
            "served without its invalid listeners: {}",
            invalid(own)
        ));
    }
    if !gateway.not_understood.is_empty() {
        lacks = lacks.or(Some(Reason::InvalidParameters));
        lacking.push(format!(
            "served with defaults instead of unsupported values: {}",
            gateway.not_understood.join("; ")
        ));
    }
    match lacks {
        Some(reason) if verdict.good() => Condition::new(
            ConditionType::Accepted,
            ConditionStatus::True,
            reason,
            &append_harmless(&lacking.join("; ")),
            generation,
        ),
        _ => verdict.accepted(&append_harmless("the Gateway is valid"), generation),
    }
}

/// Returns `None` if all requested addresses are available.
fn unassigned(gateway: &CheckedGateway<'_>) -> Option<Condition> {
    let addresses = &gateway.addresses;
    let reason = if addresses.has_no_usable_address() {
        Reason::NotAssigned
    } else {
        Reason::PartiallyAssigned
    };
    (!addresses.unassigned.is_empty()).then(|| {
        Condition::new(
            ConditionType::AddressesAssigned,
            ConditionStatus::False,
            reason,
            &addresses.unassigned.join("; "),
            gateway.owner.generation,
        )
    })
}

fn meshed(mesh: &CheckedMesh<'_>, generation: i64) -> Condition {
    let message = format!(
        "the backends of meshed routes are reached over mTLS, as configured by {}",
        mesh.source
    );
    mesh.verdict().meshed(&message, generation)
}

/// Returns the reason if no host can serve the Gateway.
fn not_programmed<'g>(
    gateway: &'g CheckedGateway<'_>,
    verdict: &'g Verdict,
) -> Option<(Reason, &'g str)> {
    let invalid = verdict.fault().map(|(_, message)| message);
    let none_served = || {
        let served = gateway
            .summarized_listeners()
            .iter()
            .any(CheckedListener::is_served);
        let message = "no listener can be served; see status.listeners";
        (!served).then_some((Reason::Invalid, message))
    };
    invalid
        .map(|message| (Reason::Invalid, message))
        .or_else(|| gateway.addresses.unusable.fault())
        .or_else(none_served)
}

/// Returns an error if no listener is served.
fn unserved<'g>(gateway: &'g CheckedGateway<'_>) -> &'g Verdict {
    if !gateway.accepted.good() {
        &gateway.accepted
    } else if gateway.addresses.has_no_usable_address() {
        &gateway.addresses.unusable
    } else {
        &GOOD
    }
}
