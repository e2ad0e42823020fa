//! ListenerSets: which attach to which Gateway, and what their status says.
//!
//! A set that is refused as a whole has no listeners on its Gateway. A set never harms its Gateway, nor a set that
//! goes before it.

use std::collections::HashMap;
use std::ops::Range;

use super::namespaces::NamespaceRule;
use super::{ListenerState, Owner};
use crate::api::{
    AllowedListeners, GATEWAY_GROUP, ListenerSet, ListenerSetSpec, NamespacedName, ObjectRef,
};
use crate::resolve::context::Context;
use crate::resolve::gateways::WAITING;
use crate::resolve::syntax::names;
use crate::status::{
    Condition, ConditionStatus, ConditionType, ListenerSetStatus, Reason, Verdict,
};
use crate::world::{Kind, World};

/// What the API's schema allows.
const MAX_LISTENERS: usize = 64;

/// A judged ListenerSet.
pub(crate) struct SetState<'w> {
    pub(crate) owner: Owner<'w>,
    /// Why it has no listeners on the Gateway.
    pub(crate) refused: Verdict,
    /// Its listeners among all of the Gateway.
    pub(crate) range: Range<usize>,
}

/// The sets of each Gateway, by its namespace and name; oldest first.
pub(crate) fn by_gateway(world: &World) -> HashMap<(&str, &str), Vec<&ListenerSet>> {
    let mut sets: HashMap<(&str, &str), Vec<&ListenerSet>> = HashMap::new();
    for set in &world.listener_sets {
        if let Some(gateway) = gateway_of(set) {
            sets.entry(gateway).or_default().push(set);
        }
    }
    for sets in sets.values_mut() {
        sets.sort_by(|a, b| a.metadata.age().cmp(&b.metadata.age()));
    }
    sets
}

/// The namespace and name of the Gateway that a set asks for; none if it asks for something else.
pub(crate) fn gateway_of(set: &ListenerSet) -> Option<(&str, &str)> {
    let ObjectRef {
        group,
        kind,
        name,
        namespace,
    } = &set.spec.parent_ref;
    let group = group.as_deref().unwrap_or(GATEWAY_GROUP);
    let kind = kind.as_deref().unwrap_or(Kind::Gateway.as_str());
    let namespace = namespace.as_deref().unwrap_or(&set.metadata.namespace);
    (group == GATEWAY_GROUP && kind == Kind::Gateway.as_str()).then_some((namespace, name.as_str()))
}

/// Judges the sets of one Gateway, and puts their listeners behind its own.
pub(crate) fn judge<'w>(
    gateway: &Owner<'w>,
    allowed: Option<&'w AllowedListeners>,
    sets: &[&'w ListenerSet],
    all: &mut Vec<ListenerState<'w>>,
    cx: &mut Context<'w, '_>,
) -> Vec<SetState<'w>> {
    let namespaces = allowed.and_then(|allowed| allowed.namespaces.as_ref());
    let rule =
        NamespaceRule::of_listener_sets(namespaces, gateway.namespace).unwrap_or_else(|why| {
            cx.problems.add(
                gateway.key(),
                format!("spec.{why}; no ListenerSet is allowed until this is mended"),
            );
            NamespaceRule::Nothing
        });
    let mut states = Vec::with_capacity(sets.len());
    for (i, set) in sets.iter().enumerate() {
        let ListenerSetSpec {
            parent_ref: _,
            listeners,
        } = &set.spec;
        let owner = Owner {
            kind: Kind::ListenerSet,
            namespace: &set.metadata.namespace,
            name: &set.metadata.name,
            generation: set.metadata.generation,
            unknown: &set.metadata.unknown,
        };
        let mut refused = Verdict::default();
        if !rule.allows(owner.namespace, cx.world) {
            refused.refuse(
                Reason::NotAllowed,
                format!(
                    "Gateway {}/{} does not allow ListenerSets of namespace {:?}; see its spec.allowedListeners",
                    gateway.namespace, gateway.name, owner.namespace
                ),
            );
        }
        if let Some(why) = owner.unknown.refusal("listeners") {
            refused.refuse(Reason::UnsupportedValue, why);
        }
        if let Err(why) = names::check_object(owner.namespace, owner.name) {
            refused.refuse(Reason::Invalid, format!("metadata: {why}"));
        }
        if !(1..=MAX_LISTENERS).contains(&listeners.len()) {
            refused.refuse(
                Reason::Invalid,
                format!(
                    "spec.listeners has {} entries; 1 to {MAX_LISTENERS} are allowed",
                    listeners.len()
                ),
            );
        }
        let start = all.len();
        if refused.good() {
            all.extend(super::judge(&owner, i.saturating_add(1), listeners));
        }
        states.push(SetState {
            owner,
            refused,
            range: start..all.len(),
        });
    }
    states
}

impl SetState<'_> {
    /// What is wrong with the set; `listeners` are its own, `gateway` says what is wrong with the Gateway.
    pub(crate) fn verdict(&self, listeners: &[ListenerState<'_>], gateway: &Verdict) -> Verdict {
        let mut verdict = self.refused.clone();
        if !verdict.good() {
            return verdict;
        }
        if let Some((Reason::ParentNotAccepted, why)) = gateway.fault() {
            verdict.refuse(Reason::ParentNotAccepted, why);
        } else if !listeners.iter().any(ListenerState::served) {
            // Unlike a Gateway, a set of which nothing can be served is not accepted, also for want of a certificate.
            verdict.refuse(
                Reason::ListenersNotValid,
                format!("no listener is valid: {}", invalid(listeners)),
            );
        }
        verdict
    }

    /// The status, where `gateway` says what is wrong with the Gateway.
    pub(crate) fn status(
        &self,
        listeners: &[ListenerState<'_>],
        gateway: &Verdict,
    ) -> ListenerSetStatus {
        let generation = self.owner.generation;
        let condition = |type_, status, reason, message: &str| {
            Condition::new(type_, status, reason, message, generation)
        };
        let verdict = self.verdict(listeners, gateway);
        let beside = |message| self.owner.unknown.beside(message, "listeners", None);
        let some_invalid = !listeners.iter().all(ListenerState::served);
        let accepted = if verdict.good() && some_invalid {
            condition(
                ConditionType::Accepted,
                ConditionStatus::True,
                Reason::ListenersNotValid,
                &beside(&format!(
                    "served without its invalid listeners: {}",
                    invalid(listeners)
                )),
            )
        } else {
            verdict.condition(
                ConditionType::Accepted,
                Reason::Accepted,
                &beside("the ListenerSet is attached"),
                generation,
            )
        };
        let fault = match (verdict.fault(), gateway.fault()) {
            (Some((Reason::ParentNotAccepted, why)), _) | (None, Some((_, why))) => {
                Some((Reason::ParentNotProgrammed, why))
            }
            (fault, _) => fault,
        };
        let programmed = match fault {
            Some((reason, why)) => condition(
                ConditionType::Programmed,
                ConditionStatus::False,
                reason,
                why,
            ),
            None => condition(
                ConditionType::Programmed,
                ConditionStatus::Unknown,
                Reason::Pending,
                WAITING,
            ),
        };
        ListenerSetStatus {
            gateway: NamespacedName::default(),
            conditions: vec![accepted, programmed],
            listeners: listeners
                .iter()
                .map(|listener| listener.status(generation, gateway))
                .collect(),
        }
    }
}

/// What is wrong with the listeners that are not valid.
pub(crate) fn invalid(listeners: &[ListenerState<'_>]) -> String {
    let faults: Vec<String> = listeners
        .iter()
        .filter_map(|listener| {
            let without_tls = || listener.resolved.fault().filter(|_| listener.without_tls);
            let (_, message) = listener.accepted.fault().or_else(without_tls)?;
            Some(format!("listener {:?}: {message}", listener.spec.name))
        })
        .collect();
    faults.join("; ")
}
