//! Logs to the systemd journal, with fields such as `SESAME_GATEWAY` and `SESAME_OBJECT`.
//!
//! `MESSAGE` contains the same line as standard error, because `journalctl` shows only `MESSAGE` by
//! default. Journal errors never stop the process.

use std::fmt::{Debug, Write as _};
use std::io;

use tracing::field::{Field, Value, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::Layer;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields as _;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

const PREFIX: &str = "SESAME";
const MESSAGE: &str = "message";

/// Returns true if standard error is the stream that `$JOURNAL_STREAM` names.
pub fn is_standard_error() -> bool {
    let (Ok(stream), Ok(stderr)) = (
        std::env::var("JOURNAL_STREAM"),
        rustix::fs::fstat(io::stderr()),
    ) else {
        return false;
    };
    names(&stream, stderr.st_dev, stderr.st_ino)
}

/// `stream` has the form `DEVICE:INODE`.
fn names(stream: &str, device: u64, inode: u64) -> bool {
    stream
        .split_once(':')
        .is_some_and(|(one, other)| one.parse() == Ok(device) && other.parse() == Ok(inode))
}

/// Fails if journald's socket is missing.
pub fn layer() -> io::Result<JournalLayer<tracing_journald::Layer>> {
    let journal = tracing_journald::layer()?
        .with_field_prefix(Some(PREFIX.to_owned()))
        .with_priority_mappings(PriorityMappings {
            error: Priority::Error,
            warn: Priority::Warning,
            info: Priority::Informational,
            debug: Priority::Debug,
            trace: Priority::Debug,
        });
    Ok(JournalLayer { journal })
}

/// Tracing layer that prefixes each journal message with its spans' names and fields.
pub struct JournalLayer<L> {
    journal: L,
}

struct SpanText {
    name: &'static str,
    fields: String,
}

impl<S, L> Layer<S> for JournalLayer<L>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    L: Layer<S>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let text = SpanText {
                name: span.name(),
                fields: text_of(attributes),
            };
            span.extensions_mut().insert(text);
        }
        self.journal.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(text) = span.extensions_mut().get_mut::<SpanText>()
        {
            text.fields.push(' ');
            text.fields.push_str(&text_of(values));
        }
        self.journal.on_record(id, values, context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = String::new();
        let spans = context.lookup_current().into_iter();
        for span in spans.flat_map(|span| span.scope().from_root()) {
            if let Some(SpanText { name, fields }) = span.extensions().get() {
                let _ = write!(line, "{name}{{{fields}}}: ");
            }
        }
        line.push_str(&text_of(event));

        let own = event.metadata().fields();
        let mut texts = FieldTexts(vec![None; own.len()]);
        event.record(&mut texts);
        if let Some(message) = own.field(MESSAGE) {
            texts.put(&message, line);
        }
        let values: Vec<Option<&dyn Value>> = texts
            .0
            .iter()
            .map(|text| text.as_ref().map(|text| text as &dyn Value))
            .collect();
        let values = own.value_set_all(&values);
        self.journal
            .on_event(&Event::new(event.metadata(), &values), context);
    }
}

fn text_of(fields: impl RecordFields) -> String {
    let mut text = String::new();
    let _ = DefaultFields::new().format_fields(Writer::new(&mut text), fields);
    text
}

struct FieldTexts(Vec<Option<String>>);

impl FieldTexts {
    fn put(&mut self, field: &Field, text: String) {
        if let Some(place) = self.0.get_mut(field.index()) {
            *place = Some(text);
        }
    }
}

impl Visit for FieldTexts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    struct Kept(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut texts = FieldTexts(vec![None; event.metadata().fields().len()]);
            event.record(&mut texts);
            let names = event.metadata().fields().iter();
            let pairs = names
                .zip(texts.0)
                .map(|(field, text)| format!("{}={}", field.name(), text.unwrap_or_default()));
            self.0.lock().unwrap().extend(pairs);
        }
    }

    #[test]
    fn the_journal_is_what_the_variable_names() {
        assert!(names("9:12345", 9, 12345));
        for other in ["", "9", "9:1234", "8:12345", "9:12345:1", "x:y"] {
            assert!(!names(other, 9, 12345), "{other:?}");
        }
    }

    #[test]
    fn journal_entry_holds_span_and_event_fields() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let layer = JournalLayer {
            journal: Kept(Arc::clone(&kept)),
        };
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::error_span!(
                "instance",
                gateway = "default/edge",
                revision = tracing::field::Empty
            );
            let _in = span.enter();
            span.record("revision", "r1");
            tracing::error!(object = %"HTTPRoute/default/a", words = "two\nlines", "refused: {}", "no");
        });
        let kept = kept.lock().unwrap().clone();
        let line = kept[0].as_str();
        assert!(line.starts_with("message=instance{gateway=\"default/edge\" revision=\"r1\"}: refused: no object=HTTPRoute/default/a words=\"two"), "{line}");
        assert_eq!(
            kept[1..],
            ["object=HTTPRoute/default/a", "words=two\nlines"]
        );
    }
}
