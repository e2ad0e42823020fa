//! The conditions of one object in the agent's report. Pure.

use sesame_gateway_api::status::{ShownCondition, conditions_of};

use crate::run::report::ObjectReport;

/// Returns whether a condition of the object says that something is wrong.
pub(super) fn is_wrong(object: &ObjectReport) -> bool {
    conditions(object).iter().any(ShownCondition::is_fault)
}

/// Returns all conditions: of the object itself, of its listeners, of its parents or ancestors.
pub(super) fn conditions(object: &ObjectReport) -> Vec<ShownCondition> {
    conditions_of(&object.status)
}
