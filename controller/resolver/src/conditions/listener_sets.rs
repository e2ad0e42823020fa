//! Conditions of ListenerSets.

use super::listeners;
use crate::gateways::CheckedGateway;
use crate::listeners::sets::CheckedListenerSet;
use crate::listeners::{CheckedListener, invalid};
use crate::policies::traffic::TrafficPolicies;
use crate::routes::attachments::AttachedGateway;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, ListenerSetStatus, Reason, Verdict,
};

pub(crate) fn statuses(
    attached: &AttachedGateway<'_, '_>,
    policies: &TrafficPolicies<'_>,
) -> impl Iterator<Item = (NamespacedName, ListenerSetStatus)> {
    let gateway = for_listener_sets(attached.gateway);
    attached.gateway.listener_sets().map(move |set| {
        let name = NamespacedName::new(set.owner.namespace, set.owner.name);
        let mut status = status(set, attached, &gateway);
        let target = (set.owner.namespace, set.owner.name);
        let affected = policies.affect(set.owner.kind, target, set.owner.generation);
        status.conditions.extend(affected);
        (name, status)
    })
}

/// The message omits the Gateway's actual problem, because the Gateway may belong to another
/// tenant.
fn for_listener_sets(gateway: &CheckedGateway<'_>) -> Verdict {
    let name = gateway.owner.display();
    let mut verdict = Verdict::default();
    if !gateway.verdict().good() {
        verdict.refuse(
            Reason::ParentNotAccepted,
            format!("{name} is not accepted; see its status"),
        );
    } else if gateway.addresses.has_no_usable_address() {
        verdict.refuse(
            Reason::ParentNotProgrammed,
            format!("{name} has no usable address; see its status"),
        );
    }
    verdict
}

/// Returns the number of accepted ListenerSets.
pub(super) fn attached(gateway: &CheckedGateway<'_>) -> usize {
    let for_sets = for_listener_sets(gateway);
    let accepted = |set: &&CheckedListenerSet<'_>| {
        let listeners = gateway.listeners_of(set);
        verdict(set, listeners, &for_sets).good()
    };
    gateway.listener_sets().filter(accepted).count()
}

fn verdict(
    set: &CheckedListenerSet<'_>,
    listeners: &[CheckedListener<'_>],
    gateway: &Verdict,
) -> Verdict {
    let mut verdict = set.refused.clone();
    if !verdict.good() {
        return verdict;
    }
    if let Some((Reason::ParentNotAccepted, why)) = gateway.fault() {
        verdict.refuse(Reason::ParentNotAccepted, why);
    } else if !listeners.iter().any(CheckedListener::serves) {
        // Unlike a Gateway, a ListenerSet is not accepted if its listeners merely lack
        // certificates.
        let message = format!("no listener is valid: {}", invalid(listeners));
        verdict.refuse(Reason::ListenersNotValid, with_notes(message, set));
    }
    verdict
}

fn with_notes(message: String, set: &CheckedListenerSet<'_>) -> String {
    let notes = set.notes.iter().cloned();
    let parts: Vec<String> = std::iter::once(message).chain(notes).collect();
    parts.join("; ")
}

fn status(
    set: &CheckedListenerSet<'_>,
    attached: &AttachedGateway<'_, '_>,
    gateway: &Verdict,
) -> ListenerSetStatus {
    let generation = set.owner.generation;
    let checked = attached.gateway.listeners_of(set);
    let verdict = verdict(set, checked, gateway);
    let append_harmless = |message: String| {
        let message = with_notes(message, set);
        let unknown = set.owner.unknown;
        unknown
            .append_harmless(&message, "listeners", None)
            .into_owned()
    };
    let some_invalid = !checked.iter().all(CheckedListener::serves);
    let accepted = if verdict.good() && some_invalid {
        Condition::new(
            ConditionType::Accepted,
            ConditionStatus::True,
            Reason::ListenersNotValid,
            &append_harmless(format!(
                "served without its invalid listeners: {}",
                invalid(checked)
            )),
            generation,
        )
    } else {
        let message = append_harmless("the ListenerSet is attached".to_owned());
        verdict.accepted(&message, generation)
    };
    let fault = match (verdict.fault(), gateway.fault()) {
        (Some((Reason::ParentNotAccepted, why)), _) | (None, Some((_, why))) => {
            Some((Reason::ParentNotProgrammed, why))
        }
        (fault, _) => fault,
    };
    let listeners = attached.listeners.get(set.range.clone());
    ListenerSetStatus {
        gateway: attached.gateway.name(),
        conditions: vec![accepted, super::programmed(fault, generation)],
        listeners: listeners
            .unwrap_or_default()
            .iter()
            .map(|listener| listeners::status(listener, generation, gateway))
            .collect(),
    }
}
