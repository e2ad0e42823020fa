//! What is to be said of one object now: resolution's judgement with what hosts and the publisher say. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::hosts::{STRANGE, Said};
use super::judged::Judged;
use crate::provision::Nameless;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::expiry::Warning;
use sesame_gateway_api::status::{
    Condition, ConditionStatus, ConditionType, GatewayClassStatus, GatewayStatus,
    ListenerSetStatus, PolicyStatus, Reason, RouteStatus, program, program_listener_set,
    refuse_rules,
};
use sesame_gateway_api::world::{Kind, ObjectKey};

/// A condition's message has an end, and nobody reads more.
const MOST_EXPIRING: usize = 20;

/// A status of one of the kinds that we write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Status {
    Class(GatewayClassStatus),
    Gateway(GatewayStatus),
    ListenerSet(ListenerSetStatus),
    Route(RouteStatus),
    Policy(PolicyStatus),
}

/// The status of the object; none if it is not ours to judge.
pub(super) fn status(
    key: &ObjectKey,
    judged: &Judged,
    hosts: &BTreeMap<NamespacedName, Said>,
    failures: &BTreeMap<NamespacedName, String>,
    nameless: &Nameless,
    now: Timestamp,
) -> Option<Status> {
    match key.kind {
        Kind::GatewayClass => {
            let status = judged.statuses.gateway_classes.get(&key.name)?;
            Some(Status::Class(status.clone()))
        }
        Kind::Gateway => {
            let mut status = judged.statuses.gateways.get(&key.name)?.clone();
            if let Some(said) = hosts.get(&key.name) {
                program(&mut status, &said.programmed.of_object(key));
                tell_lost(&mut status.conditions, &said.lost);
                tell_strange(&mut status.conditions, &said.strange);
            }
            let unpublishable = judged.unpublishable.get(&key.name);
            if let Some(why) = unpublishable.or_else(|| failures.get(&key.name)) {
                tell_unpublished(&mut status.conditions, why);
            }
            if let Some(why) = nameless.get(&key.name) {
                tell_nameless(&mut status.conditions, why);
            }
            tell_expiry(&mut status.conditions, &judged.warnings(&key.name, now));
            Some(Status::Gateway(status))
        }
        Kind::ListenerSet => {
            let mut status = judged.statuses.listener_sets.get(&key.name)?.clone();
            if let Some(said) = hosts.get(&status.gateway) {
                program_listener_set(&mut status, &said.programmed.of_object(key));
                tell_lost(&mut status.conditions, &said.lost);
            }
            Some(Status::ListenerSet(status))
        }
        Kind::BackendTlsPolicy => {
            let status = judged.statuses.backend_tls_policies.get(&key.name)?;
            Some(Status::Policy(status.clone()))
        }
        _ => {
            let mut status = judged.statuses.routes.get(key)?.clone();
            let name = key.to_string();
            for (gateway, said) in hosts {
                if let Some(refused) = said.refused.get(&name) {
                    refuse_rules(&mut status, &key.name.namespace, gateway, refused);
                }
            }
            Some(Status::Route(status))
        }
    }
}

/// Says which hosts are lost, where it is said how many serve.
fn tell_lost(conditions: &mut [Condition], lost: &[String]) {
    let Some(first) = lost.first() else {
        return;
    };
    let who = match lost.len() - 1 {
        0 => first.clone(),
        more => format!("{first} and {more} more"),
    };
    add(
        conditions,
        &format!("nothing was heard for 3 minutes of {who}"),
    );
}

/// Says which addresses are left out, where it is said how many hosts serve.
fn tell_strange(conditions: &mut [Condition], strange: &[String]) {
    if !strange.is_empty() {
        let all = strange.join(", ");
        add(
            conditions,
            &format!("left out are addresses {all}: {STRANGE}"),
        );
    }
}

fn add(conditions: &mut [Condition], what: &str) {
    let programmed = conditions
        .iter_mut()
        .filter(|condition| condition.type_ == ConditionType::Programmed)
        .filter(|condition| condition.message.starts_with("programmed on "));
    for condition in programmed {
        condition.message = format!("{}; {what}", condition.message);
    }
}

/// Says that the Gateway has no Service. What it routes is not concerned.
fn tell_nameless(conditions: &mut Vec<Condition>, why: &str) {
    let generation = conditions
        .first()
        .map_or(0, |first| first.observed_generation);
    conditions.push(Condition::new(
        ConditionType::GatewayService,
        ConditionStatus::False,
        Reason::NameTaken,
        why,
        generation,
    ));
}

/// Says which certificates expire soon, or have expired. Expiry is no reason for the condition to be False.
fn tell_expiry(conditions: &mut [Condition], warnings: &[Warning]) {
    let resolved = conditions
        .iter_mut()
        .find(|condition| condition.type_ == ConditionType::ResolvedRefs);
    if let Some(condition) = resolved {
        for warning in warnings.iter().take(MOST_EXPIRING) {
            condition.message.push_str("; ");
            condition.message.push_str(&warning.message);
        }
    }
}

/// Says that what is wanted is not published.
fn tell_unpublished(conditions: &mut [Condition], why: &str) {
    let message = format!("cannot be published, what was published before is served: {why}");
    let programmed: Option<&mut Condition> = conditions
        .iter_mut()
        .find(|condition| condition.type_ == ConditionType::Programmed);
    if let Some(condition) = programmed {
        condition.status = ConditionStatus::False;
        condition.reason = Reason::Invalid;
        condition.message = message;
    }
}
