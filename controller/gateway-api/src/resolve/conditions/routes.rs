//! What the status of a route says of one of its parents.

use crate::api::Metadata;
use crate::resolve::routes::CheckedRoute;
use crate::status::{Condition, ConditionStatus, ConditionType, Reason, Verdict};

impl CheckedRoute {
    pub(crate) fn conditions(
        &self,
        accepted: &Verdict,
        resolved: &Verdict,
        metadata: &Metadata,
    ) -> Vec<Condition> {
        let generation = metadata.generation;
        let mut conditions = vec![
            accepted.condition(
                ConditionType::Accepted,
                Reason::Accepted,
                &metadata.unknown.beside("the route is attached", "", None),
                generation,
            ),
            resolved.condition(
                ConditionType::ResolvedRefs,
                Reason::ResolvedRefs,
                "all references are resolved",
                generation,
            ),
        ];
        if let (true, Some((reason, message))) = (accepted.good(), &self.dropped) {
            conditions.push(Condition::new(
                ConditionType::PartiallyInvalid,
                ConditionStatus::True,
                *reason,
                message,
                generation,
            ));
        }
        conditions
    }
}
