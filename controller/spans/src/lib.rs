//! Spans of changes of configuration, from the object that changed to the Envoy that serves it, and their way to a collector.
//!
//! The controller and each agent send their own part of a trace. They agree on its number without telling each other: both compute it
//! from what was published. Must never hold up a change, nor be a reason not to serve.

mod arguments;
mod collector;
mod exporter;
mod headers;
mod identity;
mod otlp;
mod span;

pub use self::arguments::SpanArgs;
pub use self::collector::{CollectorError, CollectorSettings};
pub use self::exporter::{Reporting, Spans};
pub use self::identity::{SpanId, TraceId};
pub use self::span::{ChangeSpan, ChangeTrace, SpanValue};
