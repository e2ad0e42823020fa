//! The targets of Envoy Gateway's policies.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::stops::parents;
use super::super::values::put;
use super::GROUP;
use sesame_gateway_api::api::GATEWAY_GROUP;

/// Kinds that `AccessPolicy` accepts.
pub(super) const ACCESS: &[&str] = &[
    "Gateway",
    "ListenerSet",
    "HTTPRoute",
    "GRPCRoute",
    "TLSRoute",
    "TCPRoute",
    "UDPRoute",
];
/// Kinds that may be a target of any policy.
pub(super) const ANY: &[&str] = &[
    "Gateway",
    "GatewayClass",
    "ListenerSet",
    "HTTPRoute",
    "GRPCRoute",
    "TLSRoute",
    "TCPRoute",
    "UDPRoute",
];
const MAX_TARGETS: usize = 16;

/// A target of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyTarget {
    pub(super) id: ObjectId,
    pub(super) section: Option<String>,
    /// False if the target was refused. The policy still protects it.
    is_supported: bool,
}

impl PolicyTarget {
    pub(super) fn is_l4(&self) -> bool {
        matches!(self.id.kind.as_str(), "TLSRoute" | "TCPRoute" | "UDPRoute")
    }

    pub(super) fn is_route(&self) -> bool {
        self.id.kind.ends_with("Route")
    }
}

/// Returns all objects that a policy might protect.
pub(super) fn ids(targets: &[PolicyTarget]) -> Vec<ObjectId> {
    targets.iter().map(|target| target.id.clone()).collect()
}

/// Returns the supported targets as `targetRefs`.
pub(super) fn as_refs<'t>(targets: impl IntoIterator<Item = &'t PolicyTarget>) -> Vec<Value> {
    let supported = targets.into_iter().filter(|target| target.is_supported);
    let refs = supported.map(|target| {
        let mut reference = Map::new();
        put(&mut reference, "group", Some(GATEWAY_GROUP));
        put(&mut reference, "kind", Some(target.id.kind.as_str()));
        put(&mut reference, "name", Some(target.id.name.as_str()));
        put(&mut reference, "sectionName", target.section.as_deref());
        Value::Object(reference)
    });
    refs.collect()
}

/// Takes all fields that select targets.
pub(super) fn read(
    draft: &Draft,
    own: &ObjectId,
    spec: &mut RemainingFields,
    kinds: &[&str],
) -> Vec<PolicyTarget> {
    let mut targets = Vec::new();
    let single = spec.take("targetRef").into_iter();
    for field in single.chain(spec.list("targetRefs")) {
        targets.push(one(draft, own, field, kinds, targets.len()));
    }
    for field in spec.list("targetSelectors") {
        select(draft, own, field, kinds, &mut targets);
    }
    if targets.is_empty() {
        let reason = "the policy has no target in the input";
        spec.refuse("targetRefs", reason, "name its targets, or remove it");
    }
    targets
}

fn one(
    draft: &Draft,
    own: &ObjectId,
    field: TakenField,
    kinds: &[&str],
    index: usize,
) -> PolicyTarget {
    let text = |name: &str| field.value()[name].as_str().unwrap_or_default().to_owned();
    let namespace = if text("kind") == "GatewayClass" {
        ""
    } else {
        own.namespace.as_str()
    };
    let mut target = PolicyTarget {
        id: ObjectId::new(&text("kind"), namespace, &text("name")),
        section: Some(text("sectionName")).filter(|name| !name.is_empty()),
        is_supported: false,
    };
    let known = ["group", "kind", "name", "sectionName"];
    let fields = field.value().as_object();
    let is_known = fields.is_some_and(|it| it.keys().all(|key| known.contains(&key.as_str())));
    if !is_known || text("group") != GATEWAY_GROUP {
        field.refuse(
            "expected group, kind, name and sectionName of a Gateway API object",
            "correct the reference",
        );
    } else if !kinds.contains(&target.id.kind.as_str()) {
        let reason = format!("Sesame's policies do not apply to {}", target.id.kind);
        field.refuse(&reason, "apply the policy to a Gateway or route instead");
    } else if index >= MAX_TARGETS {
        let reason = format!("Sesame's policies have at most {MAX_TARGETS} targets");
        field.refuse(&reason, "split the policy");
    } else if has_rival(draft, own, &target) {
        field.refuse(
            "another policy of this kind has the same target",
            "remove the policy that Envoy Gateway ignores, whose condition is Conflicted",
        );
    } else {
        target.is_supported = true;
        field.carry("targetRefs");
    }
    target
}

/// Returns true if another policy of the same kind has the same target. Envoy Gateway ignores one
/// of them, but files do not always show which.
fn has_rival(draft: &Draft, own: &ObjectId, target: &PolicyTarget) -> bool {
    policies(draft, &own.kind).any(|(id, spec)| {
        id != *own && id.namespace == own.namespace && named(&spec).any(|it| it == *target)
    })
}

/// Returns the specs of all input policies of a kind.
fn policies(draft: &Draft, kind: &str) -> impl Iterator<Item = (ObjectId, Value)> {
    let inputs = draft.inputs().into_iter();
    let kind = kind.to_owned();
    let policies = inputs.filter(move |(id, _)| id.kind == kind);
    policies
        .filter(|(_, it)| {
            it["apiVersion"]
                .as_str()
                .is_some_and(|it| it.starts_with(GROUP))
        })
        .map(|(id, object)| (id, object["spec"].clone()))
}

/// Target references in a spec, for comparison.
fn named(spec: &Value) -> impl Iterator<Item = NamedTarget> {
    let list = spec["targetRefs"].as_array().cloned().unwrap_or_default();
    let single = spec.get("targetRef").cloned();
    list.into_iter().chain(single).map(|target| {
        let text = |field: &str| target[field].as_str().unwrap_or_default().to_owned();
        NamedTarget {
            kind: text("kind"),
            name: text("name"),
            section: text("sectionName"),
        }
    })
}

struct NamedTarget {
    kind: String,
    name: String,
    section: String,
}

impl PartialEq<PolicyTarget> for NamedTarget {
    fn eq(&self, other: &PolicyTarget) -> bool {
        self.kind == other.id.kind
            && self.name == other.id.name
            && self.section == other.section.as_deref().unwrap_or_default()
    }
}

/// Adds the objects that a selector selects now.
fn select(
    draft: &Draft,
    own: &ObjectId,
    field: TakenField,
    kinds: &[&str],
    targets: &mut Vec<PolicyTarget>,
) {
    let selector = field.value().clone();
    let kind = selector["kind"].as_str().unwrap_or_default();
    let known = ["group", "kind", "matchLabels"];
    let fields = selector.as_object();
    let is_known = fields.is_some_and(|it| it.keys().all(|key| known.contains(&key.as_str())));
    let inputs = draft.inputs().into_iter();
    let of_kind = inputs.filter(|(id, _)| id.kind == kind && id.namespace == own.namespace);
    let labels = selector["matchLabels"].as_object();
    let selected = of_kind.filter(|(_, object)| {
        let own = &object["metadata"]["labels"];
        // An unknown condition might select any object.
        !is_known || labels.is_none_or(|it| it.iter().all(|(key, value)| own[key] == *value))
    });
    let selected: Vec<ObjectId> = selected.map(|(id, _)| id).collect();
    let fits = targets.len() + selected.len() <= MAX_TARGETS;
    let is_supported = is_known && fits && kinds.contains(&kind) && !selected.is_empty();
    if is_supported {
        let difference = "lists the objects in the input that have the labels; add later objects";
        field.differ("targetRefs", difference);
    } else {
        field.refuse(
            "Sesame's policies name their targets",
            "use targetRefs with at most 16 targets",
        );
    }
    targets.extend(selected.into_iter().map(|id| PolicyTarget {
        id,
        section: None,
        is_supported,
    }));
}

/// Returns the routes in the input that are a target, or attached to a target.
pub(super) fn routes_of(draft: &Draft, target: &PolicyTarget) -> Vec<ObjectId> {
    if target.is_route() {
        return vec![target.id.clone()];
    }
    let inputs = draft.inputs();
    let of = |child: &str, parent: &[ObjectId]| {
        let children = inputs.iter().filter(|(id, object)| {
            id.kind.ends_with(child) && parents(id, object).iter().any(|it| parent.contains(it))
        });
        children.map(|(id, _)| id.clone()).collect::<Vec<_>>()
    };
    let mut parents = vec![target.id.clone()];
    parents.extend(of("ListenerSet", &parents));
    of("Route", &parents)
}

/// Explains that a route's policy adds to its Gateway's policy, if the input has one.
pub(super) fn overriding(
    draft: &Draft,
    own: &ObjectId,
    targets: &[PolicyTarget],
) -> Option<String> {
    let is_specific = |target: &PolicyTarget| target.is_route() || target.section.is_some();
    if !targets.iter().any(is_specific) {
        return None;
    }
    let broader = policies(draft, &own.kind).find(|(id, spec)| {
        let is_broad = |it: NamedTarget| it.kind == "Gateway" && it.section.is_empty();
        id != own && named(spec).any(is_broad)
    });
    broader.map(|(id, _)| id.to_string())
}

/// Returns a reference for messages.
pub(super) fn service_ref(name: &str) -> Value {
    json!({"group": "", "kind": "Service", "name": name})
}
