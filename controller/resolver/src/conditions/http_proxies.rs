//! Statuses of HTTPProxies. As in Contour, `Valid` lists errors and warnings. Each status has one
//! parent, the Gateway of the HTTPProxy's class.

use super::ingresses::{ports, reference, refusal};
use crate::gateways::CheckedGateway;
use crate::ingresses::INGRESS_CONTROLLER;
use crate::proxies::{CheckedExtension, CheckedProxy};
use crate::routes::Routes;
use crate::tables::{LostRequests, Unreached};
use sesame_kinds::api::Metadata;
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, ProxyDetail, Reason, RouteParentStatus, RouteStatus,
};
use sesame_kinds::world::{Kind, ObjectKey};

/// `lost` contains the requests that other routes receive instead.
pub(crate) fn statuses(
    proxies: &[CheckedProxy<'_>],
    routes: &Routes<'_>,
    gateways: &[CheckedGateway<'_>],
    lost: &LostRequests,
) -> Vec<(ObjectKey, RouteStatus)> {
    let status = |proxy: &CheckedProxy<'_>| {
        let refusal = refusal(proxy.routes.iter().copied(), routes, gateways);
        let details = details(proxy, lost, refusal);
        let condition = valid(proxy.metadata, &details, "Valid HTTPProxy");
        let parent = RouteParentStatus {
            parent_ref: reference(proxy.gateway.clone().unwrap_or_default()),
            through: None,
            controller_name: INGRESS_CONTROLLER.to_owned(),
            ports: ports(proxy.routes.iter().copied(), routes, gateways),
            conditions: vec![condition],
        };
        let status = RouteStatus {
            parents: vec![parent],
            details,
        };
        (proxy.object.clone(), status)
    };
    proxies.iter().map(status).collect()
}

/// `refusal` says why the Gateway is not served.
fn details(
    proxy: &CheckedProxy<'_>,
    lost: &LostRequests,
    refusal: Option<String>,
) -> Vec<ProxyDetail> {
    let mut details = proxy.details.clone();
    let detail = |warning, type_, reason, message: &str| ProxyDetail {
        warning,
        type_,
        reason,
        message: message.to_owned(),
    };
    if proxy.orphaned {
        let why = "this HTTPProxy is not part of a delegation chain from a root HTTPProxy";
        details.push(detail(false, "Orphaned", "Orphaned", why));
    }
    if let Some(why) = refusal {
        let reason = "ErrorIdentifyingListener";
        details.push(detail(false, "ListenerError", reason, &why));
    }
    let routes = proxy.routes.iter();
    for duplicate in [true, false] {
        let mut lost = routes.clone().filter_map(|it| lost.unreached.get(it));
        if let Some(Unreached { message, .. }) = lost.find(|it| it.duplicate == duplicate) {
            let reason = if duplicate {
                "DuplicateMatch"
            } else {
                "Overridden"
            };
            details.push(detail(true, "RouteError", reason, message));
        }
    }
    if let Some((_, why)) = routes.clone().find_map(|it| lost.displaced.get(&(*it, 0))) {
        details.push(detail(false, "RouteError", "Displaced", why));
    }
    details
}

/// The status of an ExtensionService, whose parent is the Gateway of an HTTPProxy that needs it.
pub(crate) fn extension(extension: &CheckedExtension<'_>) -> (ObjectKey, RouteStatus) {
    let CheckedExtension {
        metadata,
        gateway,
        details,
    } = extension;
    let object = Kind::ExtensionService.named(metadata.key());
    let condition = valid(metadata, details, "Valid ExtensionService");
    let parent = RouteParentStatus {
        parent_ref: reference(gateway.clone()),
        through: None,
        controller_name: INGRESS_CONTROLLER.to_owned(),
        ports: Vec::new(),
        conditions: vec![condition],
    };
    let status = RouteStatus {
        parents: vec![parent],
        details: details.clone(),
    };
    (object, status)
}

fn valid(metadata: &Metadata, details: &[ProxyDetail], valid: &str) -> Condition {
    let errors: Vec<&str> = details
        .iter()
        .filter(|detail| !detail.warning)
        .map(|detail| detail.message.as_str())
        .collect();
    let (status, reason, message) = if errors.is_empty() {
        (ConditionStatus::True, Reason::Valid, valid.to_owned())
    } else {
        (
            ConditionStatus::False,
            Reason::ErrorPresent,
            errors.join("; "),
        )
    };
    let generation = metadata.generation;
    Condition::new(ConditionType::Valid, status, reason, &message, generation)
}
