//! Data types for spans.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::identity::{SpanId, TraceId};

/// Maximum length of a text attribute, in characters.
const MAX_TEXT: usize = 1024;

/// One span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeSpan {
    pub(crate) trace: TraceId,
    pub(crate) id: SpanId,
    pub(crate) parent: Option<SpanId>,
    pub(crate) name: String,
    pub(crate) start: SystemTime,
    pub(crate) end: SystemTime,
    pub(crate) attributes: Vec<(&'static str, SpanValue)>,
    pub(crate) failure: Option<String>,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// A string.
    Text(String),
    /// A number.
    Number(u64),
}

impl ChangeSpan {
    /// Returns the id of the span.
    pub fn id(&self) -> SpanId {
        self.id
    }

    /// Adds a string attribute.
    #[must_use]
    pub fn text(mut self, name: &'static str, text: &str) -> Self {
        let text = SpanValue::Text(bounded(text));
        self.attributes.push((name, text));
        self
    }

    /// Adds a numeric attribute.
    #[must_use]
    pub fn number(mut self, name: &'static str, number: usize) -> Self {
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        self.attributes.push((name, SpanValue::Number(number)));
        self
    }

    /// Marks the span as failed if a reason is given.
    #[must_use]
    pub fn failed(mut self, why: Option<&str>) -> Self {
        self.failure = why.map(bounded);
        self
    }
}

/// Trace of one change to a Gateway, used to create one program's spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeTrace {
    trace: TraceId,
    /// Host name, or empty for the controller.
    program: String,
    gateway: String,
    revision: String,
}

impl ChangeTrace {
    /// Creates the trace for this program, Gateway and revision.
    pub fn new(trace: TraceId, program: &str, gateway: &str, revision: &str) -> Self {
        Self {
            trace,
            program: program.to_owned(),
            gateway: gateway.to_owned(),
            revision: revision.to_owned(),
        }
    }

    /// Returns the trace id.
    pub fn id(&self) -> TraceId {
        self.trace
    }

    /// Creates the root span.
    pub fn root(&self, (start, end): (SystemTime, SystemTime)) -> ChangeSpan {
        ChangeSpan {
            id: self.trace.root(),
            parent: None,
            ..self.span("change", self.trace.root(), (start, end))
        }
    }

    /// Creates a span that covers a changed object from its arrival to its resolution.
    pub fn object(&self, object: &str, seen: (SystemTime, SystemTime)) -> ChangeSpan {
        let id = self.span_id(&format!("changed {object}"), seen.0);
        let span = self.span("changed", self.trace.root(), seen);
        ChangeSpan { id, ..span }.text("sesame.object", object)
    }

    /// Returns the id of the span with this name and start time, which need not exist yet.
    pub fn span_id(&self, name: &str, start: SystemTime) -> SpanId {
        self.trace.span(&self.program, name, start)
    }

    /// Creates a child span. The duration is zero if the clock was set back.
    pub fn span(
        &self,
        name: &str,
        parent: SpanId,
        (start, end): (SystemTime, SystemTime),
    ) -> ChangeSpan {
        let text = |text: &str| SpanValue::Text(bounded(text));
        ChangeSpan {
            trace: self.trace,
            id: self.span_id(name, start),
            parent: Some(parent),
            name: name.to_owned(),
            start,
            end: end.max(start),
            attributes: vec![
                ("sesame.gateway", text(&self.gateway)),
                ("sesame.revision", text(&self.revision)),
            ],
            failure: None,
        }
    }
}

/// Returns nanoseconds since the Unix epoch, or 0 for earlier times.
pub(crate) fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn bounded(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn span_has_no_negative_duration_or_unbounded_text() {
        let trace = TraceId::of_publication("a/b", "r", 1);
        let trace = ChangeTrace::new(trace, "host", "a/b", "r");
        let later = UNIX_EPOCH + Duration::from_secs(2);
        let span = trace.span("apply", trace.id().root(), (later, UNIX_EPOCH));
        assert_eq!(span.end, later);
        assert_eq!(span.id(), trace.span_id("apply", later));
        let long = "ü".repeat(MAX_TEXT + 1);
        let span = span.text("words", &long).failed(Some(&long));
        let text = SpanValue::Text("ü".repeat(MAX_TEXT));
        assert_eq!(span.attributes.last(), Some(&("words", text)));
        assert_eq!(span.failure.map(|why| why.chars().count()), Some(MAX_TEXT));
    }
}
