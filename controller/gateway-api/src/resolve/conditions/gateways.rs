//! What the status of a Gateway says, and that of its ListenerSets.

use crate::api::NamespacedName;
use crate::resolve::gateways::{GOOD, GatewayState, WAITING};
use crate::resolve::listeners::ListenerState;
use crate::resolve::listeners::sets;
use crate::status::{
    Condition, ConditionStatus, ConditionType, GatewayStatus, ListenerSetStatus, Reason, Verdict,
};

impl GatewayState<'_> {
    pub(crate) fn status(&self) -> GatewayStatus {
        let generation = self.owner.generation;
        let verdict = self.verdict();
        let own = self.owned(None).listeners;
        let condition = |type_, status, reason, message: &str| {
            Condition::new(type_, status, reason, message, generation)
        };
        let beside = |message| self.owner.unknown.beside(message, "listeners", None);
        let mut lacking = Vec::new();
        let mut lacks = None;
        if own.iter().any(|l| !l.accepted.good()) {
            lacks = Some(Reason::ListenersNotValid);
            lacking.push(format!(
                "served without its invalid listeners: {}",
                sets::invalid(own)
            ));
        }
        if !self.not_understood.is_empty() {
            lacks = lacks.or(Some(Reason::InvalidParameters));
            lacking.push(format!(
                "served with the default in place of what is not understood: {}",
                self.not_understood.join("; ")
            ));
        }
        let accepted = match lacks {
            Some(reason) if verdict.good() => condition(
                ConditionType::Accepted,
                ConditionStatus::True,
                reason,
                &beside(&lacking.join("; ")),
            ),
            _ => verdict.condition(
                ConditionType::Accepted,
                Reason::Accepted,
                &beside("the Gateway is valid"),
                generation,
            ),
        };
        let programmed = if let Some((_, message)) = verdict.fault() {
            condition(
                ConditionType::Programmed,
                ConditionStatus::False,
                Reason::Invalid,
                message,
            )
        } else if let Some((reason, message)) = self.addresses.unusable.fault() {
            condition(
                ConditionType::Programmed,
                ConditionStatus::False,
                reason,
                message,
            )
        } else if self.answers_for().iter().any(ListenerState::served) {
            condition(
                ConditionType::Programmed,
                ConditionStatus::Unknown,
                Reason::Pending,
                WAITING,
            )
        } else {
            condition(
                ConditionType::Programmed,
                ConditionStatus::False,
                Reason::Invalid,
                "no listener can be served; see status.listeners",
            )
        };
        let mut resolved = self.resolved.clone();
        for listener in own {
            if let Some((_, message)) = listener.resolved.fault() {
                resolved.refuse(
                    Reason::ListenersNotResolved,
                    format!("listener {:?}: {message}", listener.spec.name),
                );
            }
        }
        let mut conditions = vec![
            accepted,
            programmed,
            resolved.condition(
                ConditionType::ResolvedRefs,
                Reason::ResolvedRefs,
                "all references are resolved",
                generation,
            ),
        ];
        if self.frontend.insecure {
            conditions.push(condition(
                ConditionType::InsecureFrontendValidationMode,
                ConditionStatus::True,
                Reason::ConfigurationChanged,
                "spec.tls.frontend allows clients without a valid certificate (AllowInsecureFallback)",
            ));
        }
        let unserved = self.unserved();
        let for_sets = self.for_sets();
        let attached = self.sets.iter().enumerate().filter(|(i, set)| {
            let listeners = self.owned(Some(*i)).listeners;
            set.verdict(listeners, &for_sets).good()
        });
        GatewayStatus {
            addresses: Vec::new(),
            conditions,
            listeners: own.iter().map(|l| l.status(generation, unserved)).collect(),
            attached_listener_sets: i32::try_from(attached.count()).unwrap_or(i32::MAX),
        }
    }

    /// The statuses of its ListenerSets.
    pub(crate) fn set_statuses(&self) -> impl Iterator<Item = (NamespacedName, ListenerSetStatus)> {
        let for_sets = self.for_sets();
        self.sets.iter().enumerate().map(move |(i, set)| {
            let listeners = self.owned(Some(i)).listeners;
            let status = ListenerSetStatus {
                gateway: NamespacedName::new(self.owner.namespace, self.owner.name),
                ..set.status(listeners, &for_sets)
            };
            (
                NamespacedName::new(set.owner.namespace, set.owner.name),
                status,
            )
        })
    }

    /// What its ListenerSets are told of it: what is wrong, but not why, which may be none of their business.
    fn for_sets(&self) -> Verdict {
        let name = self.owned(None).name();
        let mut verdict = Verdict::default();
        if !self.verdict().good() {
            verdict.refuse(
                Reason::ParentNotAccepted,
                format!("{name} is not accepted; see its status"),
            );
        } else if self.addresses.nowhere() {
            verdict.refuse(
                Reason::ParentNotProgrammed,
                format!("{name} has no address to be served on; see its status"),
            );
        }
        verdict
    }

    /// Why not even valid listeners are served: those of a Gateway that is refused as a whole are not.
    fn unserved(&self) -> &Verdict {
        if !self.accepted.good() {
            &self.accepted
        } else if self.addresses.nowhere() {
            &self.addresses.unusable
        } else {
            &GOOD
        }
    }
}
