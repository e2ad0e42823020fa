//! Conditions of an object in the agent's report. Pure.

use sesame_gateway_api::status::{ShownCondition, conditions_of};

use crate::run::report::ObjectReport;

/// Returns true if any of the object's conditions reports a problem.
pub(super) fn is_wrong(object: &ObjectReport) -> bool {
    conditions(object).iter().any(ShownCondition::is_fault)
}

/// Returns all conditions of the object, of its listeners, and of its parents or ancestors.
pub(super) fn conditions(object: &ObjectReport) -> Vec<ShownCondition> {
    conditions_of(&object.status)
}
