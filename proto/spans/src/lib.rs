//! Spans for configuration changes, and their export to an OpenTelemetry collector. A trace follows
//! a change from the changed object to the Envoy instances that apply the change.
//!
//! The controller and each agent export their own parts of a trace. Each program computes the trace
//! id from the publication, so programs need not exchange ids. Spans must never delay a change or
//! prevent serving: if a collector is slow or unreachable, spans are dropped.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use sesame_spans::{ChangeTrace, Reporting, Spans, TraceId};
//!
//! # fn main() -> Result<(), sesame_spans::CollectorError> {
//! // 7 is the `resourceVersion` of the manifest. The controller computes the same id.
//! let id = TraceId::of_publication("shop/edge", "f8c3bf28", 7);
//! let trace = ChangeTrace::new(id, "node-1", "shop/edge", "f8c3bf28");
//!
//! let reporting = Reporting {
//!     service: "sesame-agent".to_owned(),
//!     version: "1.0.0".to_owned(),
//!     host: "node-1".to_owned(),
//! };
//! // Without collector settings, spans are dropped. With settings, this needs a Tokio runtime.
//! let spans = Spans::start(None, reporting)?;
//! let start = SystemTime::UNIX_EPOCH;
//! let times = (start, start + Duration::from_millis(20));
//! let span = trace.span("apply", id.root(), times).number("sesame.files", 3);
//! assert_eq!(span.id(), trace.span_id("apply", start));
//! spans.send(span);
//! # Ok(())
//! # }
//! ```

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
