//! The types of `proto/snapshot.proto`. Maps are ordered, so encoding is deterministic.

#![allow(
    missing_docs,
    reason = "documented in snapshot.proto, which this is built from"
)]
#![allow(clippy::pedantic, reason = "generated")]

include!(concat!(env!("OUT_DIR"), "/sesame.snapshot.v1alpha1.rs"));

impl Retry {
    /// Number of retries that a request may have at most. A request that is retried without a bound floods its backend.
    pub const MOST_ATTEMPTS: u32 = 15;
    /// Least milliseconds of a backoff. Envoy's own default is as long.
    pub const LEAST_BACKOFF_MS: u64 = 25;
}

impl Port {
    /// Returns the port that hosts open, unless they are told otherwise.
    pub fn opened(&self) -> u32 {
        if self.inside == 0 {
            self.port
        } else {
            self.inside
        }
    }
}

impl VirtualHost {
    /// Number of authorizations at most. Proxies have a place for each whether or not it is used: a change of their number
    /// would end the connections of all hostnames on the port.
    pub const MAX_EXTERNAL_AUTHS: usize = 4;
}

/// The encoded descriptors of the schema, for printing snapshots as JSON and for `bounds`.
pub(crate) static DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/snapshot.bin"));

/// Bytes that a value of each message takes, without those that it points to.
pub(crate) static SIZES: &[(&str, usize)] = include!(concat!(env!("OUT_DIR"), "/sizes.rs"));
