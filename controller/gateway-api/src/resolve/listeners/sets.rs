//! ListenerSets: the Gateway of each, and its checked listeners.
//!
//! A ListenerSet that is refused as a whole has no listeners on its Gateway. It never affects its
//! Gateway, nor a ListenerSet of higher precedence.

use std::collections::HashMap;
use std::ops::Range;

use super::check::check as check_listeners;
use super::listener::{CheckedListener, ListenerOwner};
use super::namespaces::NamespaceRule;
use crate::api::{AllowedListeners, GATEWAY_GROUP, ListenerSet, ListenerSetSpec, ObjectRef};
use crate::resolve::context::ResolveContext;
use crate::resolve::syntax::limits;
use crate::status::{Reason, Verdict};
use crate::world::{Kind, World};

/// A ListenerSet of our Gateway.
pub(crate) struct CheckedListenerSet<'w> {
    pub(crate) owner: ListenerOwner<'w>,
    /// The reason why it has no listeners on the Gateway, if so.
    pub(crate) refused: Verdict,
    /// Range of its listeners among all listeners of the Gateway.
    pub(crate) range: Range<usize>,
}

/// Returns the ListenerSets of each Gateway, by its namespace and name; oldest first.
pub(crate) fn by_gateway(world: &World) -> HashMap<(&str, &str), Vec<&ListenerSet>> {
    let mut sets: HashMap<(&str, &str), Vec<&ListenerSet>> = HashMap::new();
    for set in &world.listener_sets {
        if let Some(gateway) = gateway_of(set) {
            sets.entry(gateway).or_default().push(set);
        }
    }
    for sets in sets.values_mut() {
        sets.sort_by(|a, b| a.metadata.by_age(&b.metadata));
    }
    sets
}

/// Returns the namespace and name of a ListenerSet's Gateway, or `None` if its parent is of another
/// kind.
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

/// Checks the ListenerSets of one Gateway, and appends their listeners to `all`.
pub(crate) fn check<'w>(
    gateway: &ListenerOwner<'w>,
    allowed: Option<&'w AllowedListeners>,
    sets: &[&'w ListenerSet],
    all: &mut Vec<CheckedListener<'w>>,
    cx: &mut ResolveContext<'w, '_>,
) -> Vec<CheckedListenerSet<'w>> {
    let namespaces = allowed.and_then(|allowed| allowed.namespaces.as_ref());
    let rule =
        NamespaceRule::of_listener_sets(namespaces, gateway.namespace).unwrap_or_else(|why| {
            cx.problems.add(
                gateway.key(),
                format!("spec.{why}; no ListenerSet is allowed until this is fixed"),
            );
            NamespaceRule::Nothing
        });
    let mut states = Vec::with_capacity(sets.len());
    for (i, set) in sets.iter().enumerate() {
        let ListenerSetSpec {
            parent_ref: _,
            listeners,
        } = &set.spec;
        let owner = ListenerOwner::of(Kind::ListenerSet, &set.metadata);
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
        owner.check_name(&mut refused);
        let number = limits::entries("spec.listeners", listeners.len(), 1..=limits::MAX_LISTENERS);
        refused.refuse_if(Reason::Invalid, number.err());
        let start = all.len();
        // If a protection is missing, its listeners keep their hostnames and refuse all requests.
        let withheld = owner.unknown.refusal("listeners");
        if refused.good() {
            let checked = check_listeners(&owner, i.saturating_add(1), listeners);
            all.extend(checked.into_iter().map(|listener| CheckedListener {
                withheld: withheld.clone().or(listener.withheld),
                ..listener
            }));
        }
        refused.refuse_if(Reason::UnsupportedValue, withheld);
        states.push(CheckedListenerSet {
            owner,
            refused,
            range: start..all.len(),
        });
    }
    states
}
