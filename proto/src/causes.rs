//! Errors as one line of text.

use std::error::Error;

/// Returns the message with the messages of its causes, each once.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut messages: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let message = error.to_string();
        // Skip a message that the previous message already contains.
        if !messages.last().is_some_and(|last| last.contains(&message)) {
            messages.push(message);
        }
        next = error.source();
    }
    messages.join(": ")
}
