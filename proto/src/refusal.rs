//! Statuses for requests that are not forwarded.

/// HTTP status for an invalid rule or backend.
pub const HTTP: u32 = 500;

/// Status for a request on another listener's connection. The client then opens a new connection.
pub const MISDIRECTED: u32 = 421;

/// gRPC status for an invalid rule or backend. Envoy maps 503 to `UNAVAILABLE`, but 500 to
/// `UNKNOWN`.
pub const GRPC: u32 = 503;

/// Status for a request to an HTTPProxy if the selected Service is unavailable.
pub const UNAVAILABLE: u32 = 503;
