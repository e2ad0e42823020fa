//! Conditions of Ingresses. The status of an Ingress has no conditions, so hosts display the
//! conditions and clusters report them as Events. Each status has one parent, the Gateway of the
//! Ingress's class.

use std::collections::BTreeSet;

use crate::gateways::CheckedGateway;
use crate::ingresses::{CheckedIngress, INGRESS_CONTROLLER};
use crate::routes::{CheckedRoute, Routes};
use crate::tables::LostRequests;
use sesame_kinds::api::{GATEWAY_GROUP, NamespacedName, ParentRef};
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, Grounds, Reason, RouteParentStatus, RouteStatus,
};
use sesame_kinds::world::{Kind, ObjectKey};

/// `lost` contains the requests that other routes receive instead.
pub(crate) fn statuses(
    ingresses: &[CheckedIngress<'_>],
    routes: &Routes<'_>,
    gateways: &[CheckedGateway<'_>],
    lost: &LostRequests,
) -> Vec<(ObjectKey, RouteStatus)> {
    let status = |ingress: &CheckedIngress<'_>| {
        let parent = RouteParentStatus {
            parent_ref: reference(ingress.gateway.clone().unwrap_or_default()),
            through: None,
            controller_name: INGRESS_CONTROLLER.to_owned(),
            ports: ports(ingress.routes.clone(), routes, gateways),
            conditions: conditions(
                ingress,
                lost,
                refusal(ingress.routes.clone(), routes, gateways),
            ),
        };
        let parents = vec![parent];
        let status = RouteStatus {
            parents,
            details: Vec::new(),
        };
        (ingress.object.clone(), status)
    };
    ingresses.iter().map(status).collect()
}

/// `of` contains route indices.
pub(super) fn ports(
    of: impl Iterator<Item = usize>,
    routes: &Routes<'_>,
    gateways: &[CheckedGateway<'_>],
) -> Vec<u16> {
    let routes = of.filter_map(|place| routes.get(place));
    let attached = routes.flat_map(CheckedRoute::attaches_to);
    let ports = attached.flat_map(|(_, (gateway, listeners))| {
        let gateway = gateways.get(gateway);
        let port = move |place: usize| gateway?.listeners.get(place)?.port;
        listeners.iter().filter_map(move |(place, _)| port(*place))
    });
    let ports: BTreeSet<u16> = ports.collect();
    ports.into_iter().collect()
}

/// Returns why the Gateway of the routes is not served. `of` contains route indices.
pub(super) fn refusal(
    of: impl Iterator<Item = usize>,
    routes: &Routes<'_>,
    gateways: &[CheckedGateway<'_>],
) -> Option<String> {
    let routes = of.filter_map(|place| routes.get(place));
    let mut attached = routes.flat_map(CheckedRoute::attaches_to);
    attached.find_map(|(_, (gateway, _))| {
        let gateway = gateways.get(gateway)?;
        let (_, why) = gateway.accepted.fault()?;
        Some(format!("Gateway {} is not accepted: {why}", gateway.name()))
    })
}

/// `refusal` says why the Gateway is not served. The Ingress stays accepted, so it keeps the
/// addresses of a Gateway whose last publication is still served.
fn conditions(
    ingress: &CheckedIngress<'_>,
    lost: &LostRequests,
    refusal: Option<String>,
) -> Vec<Condition> {
    let CheckedIngress {
        object: _,
        metadata,
        gateway: _,
        accepted,
        resolved,
        dropped,
        overridden,
        routes,
    } = ingress;
    let generation = metadata.generation;
    let unreached = routes.clone().filter_map(|it| lost.unreached.get(&it));
    let (by_other, by_itself): (Vec<_>, Vec<_>) = unreached.partition(|it| it.by_other);
    let mut message = "the rules are attached".to_owned();
    if let Some(unreached) = by_itself.first() {
        message.push_str("; ");
        message.push_str(&unreached.message);
    }
    let mut conditions = vec![accepted.accepted(&message, generation)];
    let bad = ConditionStatus::False;
    conditions.extend(refusal.map(|why| {
        let (type_, reason) = (ConditionType::Programmed, Reason::ParentNotAccepted);
        Condition::new(type_, bad, reason, &why, generation)
    }));
    conditions.push(resolved.resolved_refs(generation));
    if let Some((reason, message)) = dropped.fault() {
        conditions.push(Condition::new(
            ConditionType::PartiallyInvalid,
            ConditionStatus::True,
            reason,
            message,
            generation,
        ));
    }
    let displaced = routes.clone().find_map(|it| lost.displaced.get(&(it, 0)));
    let by_other = by_other.first().map(|it| &it.message);
    let overridden = by_other.into_iter().chain(overridden);
    let overridden = overridden.map(|message| (Reason::Overridden, message.clone()));
    let losses: Vec<Grounds> = displaced.cloned().into_iter().chain(overridden).collect();
    if let Some((reason, _)) = losses.first() {
        let messages: Vec<&str> = losses.iter().map(|(_, message)| message.as_str()).collect();
        conditions.push(Condition::new(
            ConditionType::Displaced,
            ConditionStatus::True,
            *reason,
            &messages.join("; "),
            generation,
        ));
    }
    conditions
}

pub(super) fn reference(gateway: NamespacedName) -> ParentRef {
    let NamespacedName { namespace, name } = gateway;
    ParentRef {
        group: Some(GATEWAY_GROUP.into()),
        kind: Some(Kind::Gateway.as_str().into()),
        namespace: Some(namespace.into()),
        name,
        ..ParentRef::default()
    }
}
