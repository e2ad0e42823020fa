//! Statuses for requests that are not forwarded, because their rule or backend is invalid, or
//! because they are meant for another listener.

/// Status for HTTP requests to an invalid rule or backend.
pub const HTTP: u32 = 500;

/// Status for a request that arrives on another listener's connection. It makes the client open a
/// new connection.
pub const MISDIRECTED: u32 = 421;

/// Status for gRPC requests to an invalid rule or backend. For gRPC, Envoy maps 503 to
/// `UNAVAILABLE`, but 500 to `UNKNOWN`.
pub const GRPC: u32 = 503;

/// Status for the share of an HTTPProxy's requests that an unavailable Service would receive.
pub const UNAVAILABLE: u32 = 503;
