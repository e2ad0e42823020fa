//! Statuses of objects, without transition times.
//!
//! Resolution derives [`Statuses`] only from objects. [`program`] and [`refuse_rules`] add the
//! hosts' reports, and [`merge`] adds transition times. Nothing here reads a clock;
//! [`report_expiry`] and [`report_lapsed`] take the time as an argument.

mod agent_state;
mod certificates;
mod condition;
mod fault;
mod merge;
mod program;
mod refused;
mod sections;
mod shown;
mod trust;
mod verdict;

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::api::{AddressType, NamespacedName, ParentRef, RouteGroupKind};
use crate::world::{Kind, ObjectKey};

pub use self::agent_state::AgentState;
pub use self::certificates::report_expiry;
pub use self::condition::{Condition, ConditionStatus, ConditionType, Reason};
pub use self::merge::{TimedCondition, merge};
pub use self::program::{Programmed, program, program_listener_set, program_policy};
pub use self::refused::{RefusedRules, refuse_rules};
pub use self::sections::{ObjectStatus, Section};
pub use self::shown::{ShownCondition, conditions_of};
pub use self::trust::{PathValidity, SignatureTrust, report_lapsed};
pub use self::verdict::{GOOD, Grounds, Verdict, unsupported};

/// The statuses of all objects for which this controller is responsible.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Statuses {
    /// Statuses of the GatewayClasses that name this controller.
    #[serde(serialize_with = "by_text")]
    pub gateway_classes: BTreeMap<NamespacedName, GatewayClassStatus>,
    /// Statuses of the Gateways of these GatewayClasses.
    #[serde(serialize_with = "by_text")]
    pub gateways: BTreeMap<NamespacedName, GatewayStatus>,
    /// Statuses of the ListenerSets that attach to these Gateways.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "by_text")]
    pub listener_sets: BTreeMap<NamespacedName, ListenerSetStatus>,
    /// Statuses of the routes that attach to these Gateways or ListenerSets. Only this controller's
    /// entries.
    #[serde(serialize_with = "by_text")]
    pub routes: BTreeMap<ObjectKey, RouteStatus>,
    /// Statuses of the policies and XBackends of these Gateways. Only this controller's entries.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "by_text")]
    pub policies: BTreeMap<ObjectKey, PolicyStatus>,
}

/// The Gateway API's `GatewayClassStatus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassStatus {
    /// The conditions Accepted and SupportedVersion.
    pub conditions: Vec<Condition>,
    /// The supported features, sorted by name.
    pub supported_features: Vec<SupportedFeature>,
}

/// The Gateway API's `SupportedFeature`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SupportedFeature {
    /// Name of the feature in the Gateway API's conformance suite.
    pub name: &'static str,
}

/// The Gateway API's `GatewayStatus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// The Gateway's addresses. Empty until hosts report them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<GatewayStatusAddress>,
    /// Accepted, Programmed and ResolvedRefs, then the optional conditions.
    pub conditions: Vec<Condition>,
    /// The Gateway's own listeners, in the order of `spec.listeners`.
    pub listeners: Vec<ListenerStatus>,
    /// Number of accepted ListenerSets.
    pub attached_listener_sets: i32,
}

impl GatewayStatus {
    /// Returns the status of a Gateway that is not served at all.
    pub fn unserved(reason: Reason, why: &str, generation: i64) -> Self {
        let refused =
            |type_| Condition::new(type_, ConditionStatus::False, reason, why, generation);
        Self {
            conditions: vec![
                refused(ConditionType::Accepted),
                refused(ConditionType::Programmed),
            ],
            ..Self::default()
        }
    }
}

/// The Gateway API's `GatewayStatusAddress`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GatewayStatusAddress {
    /// IPAddress or Hostname.
    #[serde(rename = "type")]
    pub type_: AddressType,
    /// The address.
    pub value: String,
}

/// The Gateway API's `ListenerStatus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// The listener's name.
    pub name: String,
    /// The supported route kinds.
    pub supported_kinds: Vec<RouteGroupKind>,
    /// Number of accepted routes, counted even if the listener itself is not accepted.
    pub attached_routes: i32,
    /// Accepted, Programmed, ResolvedRefs and Conflicted, then the optional conditions.
    pub conditions: Vec<Condition>,
}

/// The Gateway API's `ListenerSetStatus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ListenerSetStatus {
    /// The Gateway that the ListenerSet extends.
    #[serde(skip)]
    pub gateway: NamespacedName,
    /// The conditions Accepted and Programmed.
    pub conditions: Vec<Condition>,
    /// In the order of `spec.listeners`. Empty if the ListenerSet is rejected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerStatus>,
}

/// The Gateway API's `PolicyStatus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PolicyStatus {
    /// Sorted by ancestor.
    pub ancestors: Vec<PolicyAncestorStatus>,
}

/// The Gateway API's `PolicyAncestorStatus`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyAncestorStatus {
    /// The Gateway or mesh that the policy affects.
    pub ancestor_ref: ParentRef,
    /// This controller's name.
    pub controller_name: String,
    /// Accepted, and in some cases ResolvedRefs and Programmed.
    pub conditions: Vec<Condition>,
}

impl PolicyAncestorStatus {
    /// Returns true if a condition depends on reports from hosts.
    pub fn awaits_hosts(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|it| it.type_ == ConditionType::Programmed)
    }

    /// Returns `None` if the ancestor is not a Gateway.
    pub fn gateway(&self) -> Option<NamespacedName> {
        let ParentRef {
            kind,
            namespace,
            name,
            ..
        } = &self.ancestor_ref;
        let is_gateway = kind.as_deref() == Some(Kind::Gateway.as_str());
        let namespace = namespace.as_deref().filter(|_| is_gateway)?;
        Some(NamespacedName::new(namespace, name))
    }
}

/// The Gateway API's `RouteStatus`. Also used for HTTPProxies and Ingresses, whose parent is the
/// Gateway of their class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RouteStatus {
    /// In the order of `spec.parentRefs`.
    pub parents: Vec<RouteParentStatus>,
    /// Errors and warnings of an HTTPProxy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ProxyDetail>,
}

/// Contour's `SubCondition`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyDetail {
    /// True for a warning, false for an error.
    pub warning: bool,
    /// Subject, such as `TLSError`.
    #[serde(rename = "type")]
    pub type_: &'static str,
    /// Reason, such as `SecretNotValid`.
    pub reason: &'static str,
    /// The human-readable explanation.
    pub message: String,
}

/// The Gateway API's `RouteParentStatus`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteParentStatus {
    /// Copy of the entry in `spec.parentRefs`.
    pub parent_ref: ParentRef,
    /// The Gateway that serves the route, if `parent_ref` does not refer to a Gateway.
    #[serde(skip)]
    pub through: Option<NamespacedName>,
    /// This controller's name.
    pub controller_name: String,
    /// Accepted and ResolvedRefs, then the optional conditions.
    pub conditions: Vec<Condition>,
    /// Listener ports to which an HTTPProxy or Ingress attaches. Empty for other routes.
    #[serde(skip)]
    pub ports: Vec<u16>,
}

fn by_text<K: Display, V: Serialize, S: Serializer>(
    map: &BTreeMap<K, V>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut out = serializer.serialize_map(Some(map.len()))?;
    for (key, value) in map {
        out.serialize_entry(&key.to_string(), value)?;
    }
    out.end()
}
