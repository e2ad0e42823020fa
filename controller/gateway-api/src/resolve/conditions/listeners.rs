//! What the status of a listener says.

use crate::resolve::gateways::WAITING;
use crate::resolve::listeners::ListenerState;
use crate::resolve::listeners::protocols;
use crate::status::{Condition, ConditionStatus, ConditionType, ListenerStatus, Reason, Verdict};

impl ListenerState<'_> {
    /// The status, where `gateway` says what is wrong with the Gateway as a whole.
    pub(crate) fn status(&self, generation: i64, gateway: &Verdict) -> ListenerStatus {
        let condition = |type_, status, reason, message: &str| {
            Condition::new(type_, status, reason, message, generation)
        };
        let programmed = match (
            self.accepted.fault(),
            self.resolved.fault(),
            gateway.fault(),
        ) {
            (Some((_, message)), ..) => {
                let reason = self
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
            (None, Some((_, message)), _) if self.without_tls => condition(
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
        let conflicted = match &self.conflict {
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
            self.accepted.condition(
                ConditionType::Accepted,
                Reason::Accepted,
                &self.valid,
                generation,
            ),
            programmed,
            self.resolved.condition(
                ConditionType::ResolvedRefs,
                Reason::ResolvedRefs,
                "all references are resolved",
                generation,
            ),
            conflicted,
        ];
        if !self.overlaps.is_empty() {
            conditions.push(condition(
                ConditionType::OverlappingTlsConfig,
                ConditionStatus::True,
                Reason::OverlappingHostnames,
                &format!(
                    "the hostname overlaps with that of listeners {} on the same port; requests on a reused \
                     connection that belong there are answered with 421",
                    self.overlaps.join(", ")
                ),
            ));
        }
        ListenerStatus {
            name: self.spec.name.clone(),
            supported_kinds: self
                .kinds
                .iter()
                .map(|kind| protocols::group_kind(*kind))
                .collect(),
            attached_routes: self.attached,
            conditions,
        }
    }
}
