//! The targets of Envoy Gateway's policies.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::values::put;
use sesame_kinds::api::GATEWAY_GROUP;

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
    pub(super) is_supported: bool,
}

impl PolicyTarget {
    pub(super) fn is_l4(&self) -> bool {
        matches!(self.id.kind.as_str(), "TLSRoute" | "TCPRoute" | "UDPRoute")
    }

    pub(super) fn is_route(&self) -> bool {
        self.id.kind.ends_with("Route")
    }
}

/// Returns all objects that a policy might protect. The list is empty if a target has another
/// kind: any route might use a Service, so the policy then protects its whole namespace.
pub(super) fn ids(targets: &[PolicyTarget]) -> Vec<ObjectId> {
    let is_known = |target: &PolicyTarget| ANY.contains(&target.id.kind.as_str());
    if !targets.iter().all(is_known) {
        return Vec::new();
    }
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
    let namespace = match text("namespace") {
        _ if text("kind") == "GatewayClass" => String::new(),
        given if given.is_empty() => own.namespace.clone(),
        // Refused below, but the policy might protect that object.
        given => given,
    };
    let mut target = PolicyTarget {
        id: ObjectId::new(&text("kind"), &namespace, &text("name")),
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
    let place = (own.kind.as_str(), own.namespace.as_str());
    let mut policies = draft.index().targeting(place, &target.id);
    let section = target.section.as_deref().unwrap_or_default();
    policies.any(|(id, known)| id != own && known == section)
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
    // An unknown condition might select any object, also in other namespaces.
    let all = draft
        .borrowed_inputs()
        .filter(|(id, _)| id.kind == kind && !is_known);
    let near = draft.inputs_in(kind, &own.namespace);
    let near = near.filter(|(_, object)| is_known && has_labels(&selector, object));
    let selected = all.chain(near);
    let is_target = |id: &ObjectId| {
        let mut whole = targets.iter().filter(|it| it.section.is_none());
        whole.any(|it| it.is_supported && it.id == *id)
    };
    let selected = selected.filter(|(id, _)| !is_target(id));
    let selected: Vec<ObjectId> = selected.map(|(id, _)| id.clone()).collect();
    let fits = targets.len() + selected.len() <= MAX_TARGETS;
    let is_supported = is_known && fits && kinds.contains(&kind);
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

fn has_labels(selector: &Value, object: &Value) -> bool {
    let own = &object["metadata"]["labels"];
    let labels = selector["matchLabels"].as_object();
    labels.is_none_or(|it| it.iter().all(|(key, value)| own[key] == *value))
}

/// Returns true if a route has another policy of the same kind, which Envoy Gateway applies instead
/// of the policies of the route's Gateway.
pub(super) fn is_replaced_for(draft: &Draft, own: &ObjectId, route: &ObjectId) -> bool {
    let index = draft.index();
    let is_candidate = |id: &ObjectId| {
        let spec = draft.input(id).map(|object| &object["spec"]);
        id != own && spec.is_some_and(|spec| spec["mergeType"].is_null())
    };
    let place = (own.kind.as_str(), route.namespace.as_str());
    if index
        .targeting(place, route)
        .any(|(id, _)| is_candidate(id))
    {
        return true;
    }
    let Some(object) = draft.input(route) else {
        return false;
    };
    let selecting = index.selecting(&own.kind, &route.namespace);
    let mut selecting = selecting.filter(|id| is_candidate(id));
    selecting.any(|id| {
        let policy = draft
            .input(id)
            .map(|object| &object["spec"]["targetSelectors"]);
        let selectors = policy.and_then(Value::as_array).into_iter().flatten();
        let mut selectors = selectors.filter(|it| it["kind"] == *route.kind);
        selectors.any(|it| has_labels(it, object))
    })
}

/// Returns the routes in the input that are a target, or attached to a target.
pub(super) fn routes_of(draft: &Draft, target: &PolicyTarget) -> Vec<ObjectId> {
    if target.is_route() {
        return vec![target.id.clone()];
    }
    let index = draft.index();
    let below = |parents: &[ObjectId], is_kind: fn(&ObjectId) -> bool| {
        let children = parents.iter().flat_map(|parent| index.children(parent));
        let children = children.filter(|child| is_kind(child)).cloned();
        children.collect::<BTreeSet<_>>()
    };
    let mut parents = vec![target.id.clone()];
    parents.extend(below(&parents, |child| child.kind == "ListenerSet"));
    let routes = below(&parents, |child| child.kind.ends_with("Route"));
    routes.into_iter().collect()
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
    draft.index().broader(own).map(ToString::to_string)
}

/// Returns a reference for messages.
pub(super) fn service_ref(name: &str) -> Value {
    json!({"group": "", "kind": "Service", "name": name})
}
