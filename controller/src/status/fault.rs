//! Which conditions say that something is wrong.

use super::{Condition, ConditionStatus, ConditionType};

impl Condition {
    /// Whether the condition says that something is wrong. Advice is no fault: overlapping hostnames and an
    /// insecure validation mode work as they were asked for.
    pub fn is_fault(&self) -> bool {
        match self.type_ {
            ConditionType::Accepted
            | ConditionType::Programmed
            | ConditionType::ResolvedRefs
            | ConditionType::GatewayService
            | ConditionType::SupportedVersion => self.status != ConditionStatus::True,
            ConditionType::Conflicted | ConditionType::PartiallyInvalid => {
                self.status == ConditionStatus::True
            }
            ConditionType::OverlappingTlsConfig | ConditionType::InsecureFrontendValidationMode => {
                false
            }
        }
    }
}
