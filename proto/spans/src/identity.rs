//! Computes trace and span ids. Ids are digests, so programs compute the same ids without
//! exchanging them.

use std::fmt;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use crate::span::since_1970;

/// Id of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub(crate) [u8; 16]);

/// Id of a span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub(crate) [u8; 8]);

impl TraceId {
    /// Returns the trace id of a publication; `version` is the `resourceVersion` of its manifest.
    pub fn of_publication(gateway: &str, revision: &str, version: u64) -> Self {
        let version = version.to_be_bytes();
        Self(digest([
            b"publication",
            gateway.as_bytes(),
            revision.as_bytes(),
            &version,
        ]))
    }

    /// Returns the trace id of a change on a host without a controller. `seen` is the time at which
    /// the host noticed the change.
    pub fn of_host(gateway: &str, host: &str, seen: SystemTime) -> Self {
        let seen = since_1970(seen).to_be_bytes();
        Self(digest([
            b"host",
            gateway.as_bytes(),
            host.as_bytes(),
            &seen,
        ]))
    }

    /// Returns the id of the root span.
    pub fn root(self) -> SpanId {
        self.span("", "change", SystemTime::UNIX_EPOCH)
    }

    /// Returns the id of the span with this name that a program started at the given time.
    pub fn span(self, program: &str, name: &str, start: SystemTime) -> SpanId {
        let start = since_1970(start).to_be_bytes();
        SpanId(digest([
            &self.0[..],
            program.as_bytes(),
            name.as_bytes(),
            &start,
        ]))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Prefixes each field with its length to keep fields distinct.
fn digest<const BYTES: usize>(fields: [&[u8]; 4]) -> [u8; BYTES] {
    let mut hash = Sha256::new();
    for field in fields {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    let mut first = [0; BYTES];
    first.copy_from_slice(&hash.finalize()[..BYTES]);
    first
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn trace_ids_are_deterministic_and_distinct() {
        let id = TraceId::of_publication;
        let trace = id("shop/edge", "abc", 7);
        assert_eq!(trace, id("shop/edge", "abc", 7));
        for other in [
            id("shop/edge", "abc", 8),
            id("shop/edge", "abd", 7),
            id("shop/edgea", "bc", 7),
        ] {
            assert_ne!(trace, other);
        }
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let span = trace.span("host-1", "apply", start);
        assert_eq!(span, trace.span("host-1", "apply", start));
        for other in [
            trace.span("host-2", "apply", start),
            trace.span("host-1", "render", start),
            trace.span("host-1", "apply", SystemTime::UNIX_EPOCH),
            id("shop/edge", "abc", 8).span("host-1", "apply", start),
        ] {
            assert_ne!(span, other);
        }
    }
}
