//! The result of checking one aspect of an object. It becomes one condition, so that the decision
//! and the message always agree.

use super::{Condition, ConditionStatus, ConditionType, Reason};

/// Maximum size of a condition's message in bytes, as in the API. Longer messages are truncated.
const MESSAGE_LIMIT: usize = 32 * 1024;

/// The reason for a rejection, and a message that explains it.
pub(crate) type Grounds = (Reason, String);

/// Returns the grounds for rejecting a value that is not supported.
pub(crate) fn unsupported(message: impl Into<String>) -> Grounds {
    (Reason::UnsupportedValue, message.into())
}

/// The faults found in one aspect of an object: the first reason and all messages, if there are any
/// faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    fault: Option<Grounds>,
}

/// A verdict without faults.
pub(crate) static GOOD: Verdict = Verdict { fault: None };

impl Verdict {
    /// Adds a fault. The first fault determines the reason, and all messages are joined.
    pub(crate) fn refuse(&mut self, reason: Reason, message: impl AsRef<str>) {
        let message = message.as_ref();
        match &mut self.fault {
            None => self.fault = Some((reason, message.to_owned())),
            Some((_, text)) => {
                // Rules may share a fault. Report it only once.
                if !text.contains(message) && text.len() + message.len() < MESSAGE_LIMIT {
                    text.push_str("; ");
                    text.push_str(message);
                }
            }
        }
    }

    /// Adds a fault if there is an error message.
    pub(crate) fn refuse_if(&mut self, reason: Reason, why: Option<String>) {
        if let Some(why) = why {
            self.refuse(reason, why);
        }
    }

    /// Adds the faults in another verdict.
    pub(crate) fn add(&mut self, other: &Self) {
        if let Some((reason, why)) = other.fault() {
            self.refuse(reason, why);
        }
    }

    pub(crate) fn good(&self) -> bool {
        self.fault.is_none()
    }

    /// Returns the first reason and all messages, or `None` if there are no faults.
    pub(crate) fn fault(&self) -> Option<(Reason, &str)> {
        self.fault
            .as_ref()
            .map(|(reason, message)| (*reason, message.as_str()))
    }

    /// Returns the condition Accepted. It is True with `message`, or False if there are faults.
    pub(crate) fn accepted(&self, message: &str, generation: i64) -> Condition {
        let good = (Reason::Accepted, message);
        self.condition(ConditionType::Accepted, good, generation)
    }

    /// Returns the condition ResolvedRefs.
    pub(crate) fn resolved_refs(&self, generation: i64) -> Condition {
        let good = (Reason::ResolvedRefs, "all references are resolved");
        self.condition(ConditionType::ResolvedRefs, good, generation)
    }

    /// Returns the condition Meshed. It is True with `message`, or False if there are faults.
    pub(crate) fn meshed(&self, message: &str, generation: i64) -> Condition {
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
    /// Creates a condition. Truncates a message that is longer than the API allows.
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
