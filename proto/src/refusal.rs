//! Statuses of answers to requests that cannot be forwarded: because their rule or their backend is invalid, or because they belong
//! to another listener.

/// Status for HTTP requests.
pub const HTTP: u32 = 500;

/// Status for requests on a connection of another listener, which has the client connect again.
pub const MISDIRECTED: u32 = 421;

/// Status for gRPC requests: Envoy tells gRPC clients of a 503 as UNAVAILABLE, but of a 500 as UNKNOWN.
pub const GRPC: u32 = 503;
