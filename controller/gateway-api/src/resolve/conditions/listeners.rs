//! Conditions of one listener.

use super::WAITING;
use crate::resolve::attachments::AttachedListener;
use crate::resolve::listeners::protocols;
use crate::status::{Condition, ConditionStatus, ConditionType, ListenerStatus, Reason, Verdict};

/// Returns the status of a listener. `generation` is that of its owner, `gateway` the verdict on the Gateway as a whole.
pub(super) fn status(
    attached: &AttachedListener<'_, '_>,
    generation: i64,
    gateway: &Verdict,
) -> ListenerStatus {
    let listener = attached.listener;
    let condition = |type_, status, reason, message: &str| {
        Condition::new(type_, status, reason, message, generation)
    };
    let programmed = match (
        listener.accepted.fault(),
        listener.resolved.fault(),
        gateway.fault(),
    ) {
        (Some((_, message)), ..) => {
            let reason = listener
                .conflict
                .as_ref()
                .map_or(Reason::Invalid, |(reason, _)| *reason);
            condition(
                ConditionType::Programmed,
                ConditionStatus::False,
                reason,
                message,
            )
        }
        (None, Some((_, message)), _) if listener.lacks_certificate => condition(
            ConditionType::Programmed,
            ConditionStatus::False,
            Reason::Invalid,
            &format!("the listener has no usable certificate: {message}"),
        ),
        (.., Some((_, message))) => condition(
            ConditionType::Programmed,
            ConditionStatus::False,
            Reason::Invalid,
            &format!("the Gateway is not served: {message}"),
        ),
        _ => condition(
            ConditionType::Programmed,
            ConditionStatus::Unknown,
            Reason::Pending,
            WAITING,
        ),
    };
    let conflicted = match &listener.conflict {
        Some((reason, message)) => condition(
            ConditionType::Conflicted,
            ConditionStatus::True,
            *reason,
            message,
        ),
        None => condition(
            ConditionType::Conflicted,
            ConditionStatus::False,
            Reason::NoConflicts,
            "no other listener conflicts",
        ),
    };
    let mut conditions = vec![
        listener.accepted.condition(
            ConditionType::Accepted,
            Reason::Accepted,
            &listener.accepted_message,
            generation,
        ),
        programmed,
        listener.resolved.condition(
            ConditionType::ResolvedRefs,
            Reason::ResolvedRefs,
            "all references are resolved",
            generation,
        ),
        conflicted,
    ];
    if !listener.overlaps.is_empty() {
        conditions.push(condition(
                ConditionType::OverlappingTlsConfig,
                ConditionStatus::True,
                Reason::OverlappingHostnames,
                &format!(
                    "the hostname overlaps with that of listeners {} on the same port; requests on a reused \
                     connection that belong there are answered with 421",
                    listener.overlaps.join(", ")
                ),
            ));
    }
    ListenerStatus {
        name: listener.spec.name.clone(),
        supported_kinds: listener
            .kinds
            .iter()
            .map(|kind| protocols::group_kind(*kind))
            .collect(),
        attached_routes: i32::try_from(attached.attachments.len()).unwrap_or(i32::MAX),
        conditions,
    }
}
