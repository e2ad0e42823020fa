//! Spans of configuration changes, from the changed object to the Envoy that serves it, and their
//! export to a collector.
//!
//! The controller and each agent export their parts of a trace. Both compute its id from the
//! publication. Spans must never delay a change, nor prevent serving.

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
