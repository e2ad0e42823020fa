//! Conditions of an object in the agent's report.

use sesame_kinds::status::{ShownCondition, conditions_of};

use sesame_engine::report::ObjectReport;

pub(super) fn is_wrong(object: &ObjectReport) -> bool {
    conditions(object).iter().any(ShownCondition::is_fault)
}

pub(super) fn conditions(object: &ObjectReport) -> Vec<ShownCondition> {
    conditions_of(&object.status)
}
