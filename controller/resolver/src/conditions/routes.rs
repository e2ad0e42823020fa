//! Conditions of routes, for each parent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::gateways::CheckedGateway;
use crate::parents::RouteParent;
use crate::policies::traffic::TrafficPolicies;
use crate::routes::{CheckedRoute, Routes};
use crate::tables::Unreached;
use sesame_kinds::api::Metadata;
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, GOOD, Grounds, Reason, RouteParentStatus,
    RouteStatus, Verdict,
};
use sesame_kinds::world::{Kind, ObjectKey};

/// `displaced` is keyed by route index and parent index, `unreached` by route index.
pub(crate) fn statuses(
    routes: &Routes<'_>,
    gateways: &[CheckedGateway<'_>],
    policies: &TrafficPolicies<'_>,
    displaced: &BTreeMap<(usize, usize), Grounds>,
    unreached: &BTreeMap<usize, Unreached>,
    controller_name: &str,
) -> BTreeMap<ObjectKey, RouteStatus> {
    let status = |(place, route): (usize, &CheckedRoute<'_>)| {
        let Metadata {
            namespace, name, ..
        } = route.metadata;
        let name = (namespace.as_str(), name.as_str());
        let generation = route.metadata.generation;
        let affected: Vec<Condition> = policies
            .affect(route.object.kind, name, generation)
            .collect();
        let parent_statuses = route.parents.iter().enumerate().filter_map(|(i, parent)| {
            let gateway = gateways.get(parent.parent.gateway)?;
            let found = (displaced.get(&(place, i)), unreached.get(&place));
            let mut conditions = conditions(route, parent, gateway, found);
            conditions.extend(affected.clone());
            Some(RouteParentStatus {
                parent_ref: parent.reference.clone(),
                through: parent.parent.set.map(|_| gateway.name()),
                controller_name: controller_name.to_owned(),
                ports: Vec::new(),
                conditions,
            })
        });
        // Every route has this vector, so avoid the default minimum capacity of four.
        let mut parents = Vec::with_capacity(route.parents.len());
        parents.extend(parent_statuses);
        (
            route.object.clone(),
            RouteStatus {
                parents,
                details: Vec::new(),
            },
        )
    };
    let is_gateway_api =
        |(_, route): &(usize, &CheckedRoute<'_>)| route.object.kind.is_gateway_api();
    routes
        .iter()
        .enumerate()
        .filter(is_gateway_api)
        .map(status)
        .collect()
}

fn conditions(
    route: &CheckedRoute<'_>,
    parent: &RouteParent<'_>,
    gateway: &CheckedGateway<'_>,
    (displaced, unreached): (Option<&Grounds>, Option<&Unreached>),
) -> Vec<Condition> {
    let generation = route.metadata.generation;
    let unknown = &route.metadata.unknown;
    let mut message = unknown.append_harmless("the route is attached", "", None);
    let (accepted, resolved) = verdicts(route, parent, gateway);
    let mut displaced = displaced.map(Cow::Borrowed);
    if let Some(unreached) = unreached {
        if unreached.whole && accepted.good() && displaced.is_none() {
            let grounds = (Reason::Overridden, unreached.message.clone());
            displaced = Some(Cow::Owned(grounds));
        } else {
            message = Cow::Owned(format!("{message}; {}", unreached.message));
        }
    }
    let mut conditions = vec![
        accepted.accepted(&message, generation),
        resolved.resolved_refs(generation),
    ];
    let mut add = |type_, (reason, message): &Grounds| {
        conditions.push(Condition::new(
            type_,
            ConditionStatus::True,
            *reason,
            message,
            generation,
        ));
    };
    if let (true, Some(dropped)) = (accepted.good(), &route.dropped) {
        add(ConditionType::PartiallyInvalid, dropped);
    }
    if let Some(displaced) = &displaced {
        add(ConditionType::Displaced, displaced);
    }
    let mesh = gateway.mesh.as_ref().filter(|_| accepted.good());
    if let Some(mesh) = mesh.filter(|mesh| mesh.selects(route.metadata)) {
        let mut verdict = mesh.verdict();
        if route.object.kind == Kind::UdpRoute {
            let why = "mTLS does not support datagrams, so none are sent";
            verdict.refuse(Reason::UnsupportedProtocol, why);
        }
        let message = format!(
            "its backends are reached over mTLS, as configured by {}",
            mesh.source
        );
        conditions.push(verdict.meshed(&message, generation));
    }
    conditions
}

fn verdicts<'r>(
    route: &'r CheckedRoute<'_>,
    parent: &RouteParent<'_>,
    gateway: &CheckedGateway<'_>,
) -> (Cow<'r, Verdict>, &'r Verdict) {
    match &parent.listeners {
        Err((reason, message)) => {
            let mut verdict = Verdict::default();
            verdict.refuse(*reason, message);
            (Cow::Owned(verdict), &route.resolved)
        }
        Ok(_) if !route.accepted.good() => (Cow::Borrowed(&route.accepted), &route.resolved),
        Ok(listeners) => {
            let mut places = listeners.iter().map(|(place, _)| *place);
            let terminated = places.any(|place| gateway.terminates_tls(place));
            let there = route.rules.resolved_where_terminated();
            let resolved = there.filter(|_| terminated).unwrap_or(&route.resolved);
            (Cow::Borrowed(&GOOD), resolved)
        }
    }
}
