//! What is wrong with one aspect of an object so far. It ends as one condition, so what is decided and
//! what is said come from one value.

use super::{Condition, ConditionStatus, ConditionType, Reason};

/// A condition's message may hold 32 KiB; the rest is cut off.
const MESSAGE_LIMIT: usize = 32 * 1024;

/// Nothing wrong, or the first reason and all messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    fault: Option<(Reason, String)>,
}

/// The verdict on an object with which nothing is wrong.
pub(crate) static GOOD: Verdict = Verdict { fault: None };

impl Verdict {
    /// Adds a fault. The first decides the reason; each says its message.
    pub(crate) fn refuse(&mut self, reason: Reason, message: impl AsRef<str>) {
        let message = message.as_ref();
        match &mut self.fault {
            None => self.fault = Some((reason, message.to_owned())),
            Some((_, text)) => {
                // The same fault of several rules is said once.
                if !text.contains(message) && text.len() + message.len() < MESSAGE_LIMIT {
                    text.push_str("; ");
                    text.push_str(message);
                }
            }
        }
    }

    /// Whether nothing is wrong.
    pub(crate) fn good(&self) -> bool {
        self.fault.is_none()
    }

    /// The first reason and all messages, if something is wrong.
    pub(crate) fn fault(&self) -> Option<(Reason, &str)> {
        self.fault
            .as_ref()
            .map(|(reason, message)| (*reason, message.as_str()))
    }

    /// A condition of positive polarity: True with the given words, or False with the fault.
    pub(crate) fn condition(
        &self,
        type_: ConditionType,
        reason: Reason,
        message: &str,
        generation: i64,
    ) -> Condition {
        match &self.fault {
            None => Condition::new(type_, ConditionStatus::True, reason, message, generation),
            Some((reason, message)) => {
                Condition::new(type_, ConditionStatus::False, *reason, message, generation)
            }
        }
    }
}

impl Condition {
    /// A condition; its message is cut to what the API allows.
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
        }
    }
}
