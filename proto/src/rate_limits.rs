//! Bounds of rate limits, and facts about them.

use crate::schema::{self, RateLimit, RateLimitKey};

impl RateLimit {
    /// Maximum number of limits per Gateway.
    pub const MAX: usize = 1024;
    /// Maximum number of enforced limits with keys per Gateway, because they share the memory for
    /// key values.
    pub const MAX_KEYED: usize = 256;
    /// Maximum number of rate limits per route.
    pub const MAX_OF_ROUTE: usize = 16;
    /// Maximum number of keys per limit.
    pub const MAX_KEYS: usize = 4;
    /// Maximum number of keys per limit of a service.
    pub const MAX_SERVICE_KEYS: usize = 16;
    /// Maximum length of a key or value that is sent to a service, in bytes.
    pub const MAX_ENTRY_BYTES: usize = 512;
    /// Maximum total size of the keys for a service, encoded, in bytes.
    pub const MAX_SERVICE_KEY_BYTES: usize = 2048;
    /// Maximum timeout of a service in milliseconds.
    pub const MAX_SERVICE_TIMEOUT_MS: u64 = 3_600_000;
    /// Maximum length of a key's name in bytes.
    pub const MAX_KEY_NAME: usize = 256;
    /// Maximum number of response headers per limit.
    pub const MAX_HEADERS: usize = 10;

    /// Returns at most `MAX` limits, which must be sorted by name. Envoy rejects duplicate names.
    pub fn usable(limits: &[Self]) -> &[Self] {
        schema::usable(limits, Self::MAX, |limit| &limit.name)
    }

    /// Returns true if the limit rejects requests, and remembers key values for that.
    pub fn remembers(&self) -> bool {
        !self.report_only && !self.keys.is_empty() && self.service.is_none()
    }

    /// Returns the encoded size of keys in bytes.
    pub fn size_of_keys(keys: &[RateLimitKey]) -> usize {
        keys.iter().map(prost::Message::encoded_len).sum()
    }

    /// Returns the maximum number of keys of this limit.
    pub fn max_keys(&self) -> usize {
        if self.service.is_some() {
            Self::MAX_SERVICE_KEYS
        } else {
            Self::MAX_KEYS
        }
    }

    /// Returns true if Envoy can reject requests with this status.
    pub fn is_status(status: u32) -> bool {
        matches!(status, 400..=417 | 421..=424 | 426 | 428 | 429 | 431 | 500..=508 | 510 | 511)
    }
}
