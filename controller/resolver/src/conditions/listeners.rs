//! Conditions of listeners.

use std::borrow::Cow;

use crate::listeners::{CheckedListener, protocols};
use crate::routes::attachments::AttachedListener;
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, ListenerStatus, Reason, Verdict,
};

/// `generation` is the generation of the object that defines the listener.
pub(super) fn status(
    attached: &AttachedListener<'_, '_>,
    generation: i64,
    gateway: &Verdict,
) -> ListenerStatus {
    let listener = attached.listener;
    let mut conditions = vec![
        listener
            .accepted
            .accepted(&listener.accepted_message, generation),
        programmed(listener, generation, gateway),
        resolved_refs(listener, generation),
        conflicted(listener, generation),
    ];
    conditions.extend(overlapping_tls_config(listener, generation));
    let counted = attached.attachments.iter().filter(|it| it.counts);
    ListenerStatus {
        name: listener.spec.name.clone(),
        supported_kinds: listener
            .kinds
            .iter()
            .map(|kind| protocols::group_kind(*kind))
            .collect(),
        attached_routes: i32::try_from(counted.count()).unwrap_or(i32::MAX),
        conditions,
    }
}

fn overlapping_tls_config(listener: &CheckedListener<'_>, generation: i64) -> Option<Condition> {
    let CheckedListener {
        overlaps,
        certificate_overlaps,
        ..
    } = listener;
    // Certificate overlaps take precedence over hostname overlaps (Gateway API,
    // `ListenerConditionOverlappingTLSConfig`).
    let reason = if !certificate_overlaps.is_empty() {
        Reason::OverlappingCertificates
    } else if !overlaps.is_empty() {
        Reason::OverlappingHostnames
    } else {
        return None;
    };
    let mut what = Vec::new();
    if !overlaps.is_empty() {
        let names = overlaps.join(", ");
        what.push(format!(
            "the hostname overlaps with hostnames of listeners {names} on the same port"
        ));
    }
    if !certificate_overlaps.is_empty() {
        let names = certificate_overlaps.join(", ");
        what.push(format!(
            "clients may reuse a connection for hostnames of listeners {names}, because a \
            certificate covers both"
        ));
    }
    let message = format!(
        "{}; requests for those hostnames on a reused connection get 421",
        what.join("; ")
    );
    let (type_, status) = (ConditionType::OverlappingTlsConfig, ConditionStatus::True);
    Some(Condition::new(type_, status, reason, &message, generation))
}

/// The message includes warnings about certificates.
fn resolved_refs(listener: &CheckedListener<'_>, generation: i64) -> Condition {
    let condition = listener.resolved.resolved_refs(generation);
    if listener.advice.is_empty() {
        return condition;
    }
    let message = format!("{}; {}", condition.message, listener.advice.join("; "));
    Condition::new(
        condition.type_,
        condition.status,
        condition.reason,
        &message,
        generation,
    )
}

fn programmed(listener: &CheckedListener<'_>, generation: i64, gateway: &Verdict) -> Condition {
    let resolved = listener.resolved.fault();
    let fault = match (listener.accepted.fault(), resolved, gateway.fault()) {
        (Some((_, message)), ..) => {
            let conflict = listener.conflict.as_ref();
            let reason = conflict.map_or(Reason::Invalid, |it| it.0);
            Some((reason, Cow::Borrowed(message)))
        }
        (None, Some((_, message)), _) if listener.lacks_certificate => {
            let message = format!("the listener has no usable certificate: {message}");
            Some((Reason::Invalid, message.into()))
        }
        (.., Some((_, message))) => {
            let message = format!("the Gateway is not served: {message}");
            Some((Reason::Invalid, message.into()))
        }
        _ => None,
    };
    let fault = fault
        .as_ref()
        .map(|(reason, message)| (*reason, &**message));
    super::programmed(fault, generation)
}

fn conflicted(listener: &CheckedListener<'_>, generation: i64) -> Condition {
    let (status, reason, message) = match &listener.conflict {
        Some((reason, message)) => (ConditionStatus::True, *reason, message.as_str()),
        None => (
            ConditionStatus::False,
            Reason::NoConflicts,
            "no conflict with other listeners",
        ),
    };
    Condition::new(
        ConditionType::Conflicted,
        status,
        reason,
        message,
        generation,
    )
}
