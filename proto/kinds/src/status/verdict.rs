//! Result of checking one aspect of an object. Each result becomes one condition, so the decision
//! and the message always agree.

use super::{Condition, ConditionStatus, ConditionType, Reason};

/// The API's limit for a condition's message, in bytes. Longer messages are truncated.
const MESSAGE_LIMIT: usize = 32 * 1024;

/// Reason and message of a failed check.
pub type Grounds = (Reason, String);

/// Returns the message with `Reason::UnsupportedValue`.
pub fn unsupported(message: impl Into<String>) -> Grounds {
    (Reason::UnsupportedValue, message.into())
}

/// The first fault's reason and all faults' messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    fault: Option<Grounds>,
}

/// Verdict without a fault.
pub static GOOD: Verdict = Verdict { fault: None };

impl Verdict {
    /// Adds a fault. The first fault determines the reason.
    /// Drops repeated messages, and messages beyond the API's limit.
    pub fn refuse(&mut self, reason: Reason, message: impl AsRef<str>) {
        let message = message.as_ref();
        match &mut self.fault {
            None => self.fault = Some((reason, message.to_owned())),
            Some((_, text)) => {
                // Several rules may have the same fault. Report it only once.
                if !text.contains(message) && text.len() + message.len() < MESSAGE_LIMIT {
                    text.push_str("; ");
                    text.push_str(message);
                }
            }
        }
    }

    /// Adds a fault if `why` is `Some`.
    pub fn refuse_if(&mut self, reason: Reason, why: Option<String>) {
        if let Some(why) = why {
            self.refuse(reason, why);
        }
    }

    /// Adds the faults of `other`. Keeps the reason if this verdict has one.
    pub fn add(&mut self, other: &Self) {
        if let Some((reason, why)) = other.fault() {
            self.refuse(reason, why);
        }
    }

    /// Returns true if no fault was added.
    pub fn good(&self) -> bool {
        self.fault.is_none()
    }

    /// Returns the first fault's reason and all messages, or `None` without a fault.
    pub fn fault(&self) -> Option<(Reason, &str)> {
        self.fault
            .as_ref()
            .map(|(reason, message)| (*reason, message.as_str()))
    }

    /// Returns the `Accepted` condition. `message` applies unless there are faults.
    pub fn accepted(&self, message: &str, generation: i64) -> Condition {
        let good = (Reason::Accepted, message);
        self.condition(ConditionType::Accepted, good, generation)
    }

    /// Returns the `ResolvedRefs` condition, which is true unless there are faults.
    pub fn resolved_refs(&self, generation: i64) -> Condition {
        let good = (Reason::ResolvedRefs, "all references are resolved");
        self.condition(ConditionType::ResolvedRefs, good, generation)
    }

    /// Returns the `Meshed` condition. `message` applies unless there are faults.
    pub fn meshed(&self, message: &str, generation: i64) -> Condition {
        let good = (Reason::Meshed, message);
        self.condition(ConditionType::Meshed, good, generation)
    }

    fn condition(&self, type_: ConditionType, good: (Reason, &str), generation: i64) -> Condition {
        let (status, (reason, message)) = match self.fault() {
            None => (ConditionStatus::True, good),
            Some(fault) => (ConditionStatus::False, fault),
        };
        Condition::new(type_, status, reason, message, generation)
    }
}

impl Condition {
    /// Creates a condition, truncating the message to the API's limit.
    pub fn new(
        type_: ConditionType,
        status: ConditionStatus,
        reason: Reason,
        message: &str,
        observed_generation: i64,
    ) -> Self {
        let mut end = message.len().min(MESSAGE_LIMIT);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            type_,
            status,
            reason,
            message: message.get(..end).unwrap_or_default().to_owned(),
            observed_generation,
            trust: None,
        }
    }
}
