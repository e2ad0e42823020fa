//! Statuses as values. Their conditions have the order and names that the Gateway API specifies,
//! but no transition times.
//!
//! Resolution derives [`Statuses`] only from the objects. [`program`] and [`refuse_rules`] add the
//! hosts' reports, and [`merge`] adds transition times when a status is written. Nothing here reads
//! a clock or writes to a cluster.
//!
//! Functions for conditions that depend on the time ([`tell_expiry`], [`tell_lapsed`]) take the
//! time as an argument. Only callers with a clock use these functions.

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
pub use self::certificates::tell_expiry;
pub use self::condition::{Condition, ConditionStatus, ConditionType, Reason};
pub use self::merge::{TimedCondition, merge};
pub use self::program::{Programmed, program, program_listener_set, program_policy};
pub use self::refused::{RefusedRules, refuse_rules};
pub use self::sections::{ObjectStatus, Section};
pub use self::shown::{ShownCondition, conditions_of};
pub use self::trust::{PathValidity, SignatureTrust, tell_lapsed};
pub(crate) use self::verdict::{GOOD, Grounds, Verdict, unsupported};

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
    /// Statuses of the ListenerSets that have one of these Gateways as their parent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "by_text")]
    pub listener_sets: BTreeMap<NamespacedName, ListenerSetStatus>,
    /// Statuses of the routes that have one of these Gateways or ListenerSets as a parent. Contains
    /// only this controller's entries.
    #[serde(serialize_with = "by_text")]
    pub routes: BTreeMap<ObjectKey, RouteStatus>,
    /// Statuses of the policies and XBackends that affect one of these Gateways. Contains only this
    /// controller's entries.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "by_text")]
    pub policies: BTreeMap<ObjectKey, PolicyStatus>,
}

/// `GatewayClassStatus` of the Gateway API.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassStatus {
    /// The conditions Accepted and SupportedVersion.
    pub conditions: Vec<Condition>,
    /// The supported features, sorted by name.
    pub supported_features: Vec<SupportedFeature>,
}

/// `SupportedFeature` of the Gateway API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SupportedFeature {
    /// Name of the feature in the Gateway API's conformance suite.
    pub name: &'static str,
}

/// `GatewayStatus` of the Gateway API.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// The addresses at which the Gateway is served. Empty until hosts report them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<GatewayStatusAddress>,
    /// Accepted, Programmed and ResolvedRefs, followed by conditions that are only sometimes
    /// present, such as InsecureFrontendValidationMode.
    pub conditions: Vec<Condition>,
    /// One entry per listener that the Gateway itself defines, in the order of `spec.listeners`.
    pub listeners: Vec<ListenerStatus>,
    /// Number of accepted ListenerSets that attach to the Gateway.
    pub attached_listener_sets: i32,
}

impl GatewayStatus {
    /// Returns the status of a Gateway that has a Sesame class but is not served at all.
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

/// `GatewayStatusAddress` of the Gateway API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GatewayStatusAddress {
    /// IPAddress or Hostname.
    #[serde(rename = "type")]
    pub type_: AddressType,
    /// The address.
    pub value: String,
}

/// `ListenerStatus` of the Gateway API.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// The listener's name.
    pub name: String,
    /// The route kinds that the listener supports.
    pub supported_kinds: Vec<RouteGroupKind>,
    /// Number of accepted routes that attach to the listener, even if it is not accepted itself.
    pub attached_routes: i32,
    /// Accepted, Programmed, ResolvedRefs and Conflicted. If there is something to report, also
    /// OverlappingTLSConfig, CertificatesValid and CertificatesShown.
    pub conditions: Vec<Condition>,
}

/// `ListenerSetStatus` of the Gateway API.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ListenerSetStatus {
    /// The Gateway to which the ListenerSet adds listeners.
    #[serde(skip)]
    pub gateway: NamespacedName,
    /// The conditions Accepted and Programmed.
    pub conditions: Vec<Condition>,
    /// One entry per listener, in the order of `spec.listeners`. Empty if the whole ListenerSet is
    /// rejected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerStatus>,
}

/// `PolicyStatus` of the Gateway API.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PolicyStatus {
    /// One entry per ancestor, sorted by ancestor.
    pub ancestors: Vec<PolicyAncestorStatus>,
}

/// `PolicyAncestorStatus` of the Gateway API.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyAncestorStatus {
    /// The Gateway or mesh that the policy affects.
    pub ancestor_ref: ParentRef,
    /// Name of this controller.
    pub controller_name: String,
    /// Accepted, and in some cases ResolvedRefs and Programmed.
    pub conditions: Vec<Condition>,
}

impl PolicyAncestorStatus {
    /// Returns true if one of the conditions depends on reports from hosts.
    pub fn awaits_hosts(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|it| it.type_ == ConditionType::Programmed)
    }

    /// Returns the Gateway, or `None` if the ancestor is not a Gateway.
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

/// `RouteStatus` of the Gateway API, for a route of any kind. Also used for HTTPProxies and
/// Ingresses, whose parent is the Gateway that their class specifies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RouteStatus {
    /// One entry per parent, in the order of `spec.parentRefs`.
    pub parents: Vec<RouteParentStatus>,
    /// Errors and warnings of an HTTPProxy; empty for other kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ProxyDetail>,
}

/// An error or warning of an HTTPProxy, called `SubCondition` in Contour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyDetail {
    /// True for a warning.
    pub warning: bool,
    /// Subject of the error or warning, such as `TLSError`.
    #[serde(rename = "type")]
    pub type_: &'static str,
    /// The reason, such as `SecretNotValid`.
    pub reason: &'static str,
    /// The human-readable explanation.
    pub message: String,
}

/// `RouteParentStatus` of the Gateway API.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteParentStatus {
    /// Copy of the entry in `spec.parentRefs`.
    pub parent_ref: ParentRef,
    /// The Gateway that serves the route, if `parent_ref` does not refer to a Gateway.
    #[serde(skip)]
    pub through: Option<NamespacedName>,
    /// Name of this controller.
    pub controller_name: String,
    /// Accepted and ResolvedRefs. If there is something to report, also PartiallyInvalid and
    /// Displaced.
    pub conditions: Vec<Condition>,
    /// Ports of the listeners to which an HTTPProxy or Ingress attaches. Empty for other routes.
    #[serde(skip)]
    pub ports: Vec<u16>,
}

/// Serializes a map. Converts its keys to strings.
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
