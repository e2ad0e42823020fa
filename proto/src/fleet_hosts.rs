//! The number of a Gateway's live hosts, which travels as a set of endpoints, so that it changes no
//! revision.

use crate::schema::{Endpoint, EndpointSet};

impl EndpointSet {
    /// Maximum number of hosts that a set of hosts counts.
    pub const MAX_HOSTS: u32 = 10_000;
    /// Maximum number of weights.
    pub const MAX_WEIGHTS: usize = 16;
    /// Maximum value of a weight.
    pub const MAX_WEIGHT: u32 = 1_000_000;

    /// Returns the set that counts a Gateway's live hosts. `gateway` is the snapshot's name for it.
    pub fn of_hosts(gateway: &str, hosts: u32) -> Self {
        // Never used, and reserved for documentation (RFC 5737).
        let placeholder = |port| Endpoint {
            address: "192.0.2.1".to_owned(),
            port,
            ..Endpoint::default()
        };
        Self {
            name: Self::hosts_of(gateway),
            endpoints: (1..=hosts.min(Self::MAX_HOSTS)).map(placeholder).collect(),
            ..Self::default()
        }
    }

    /// Returns the name of the set that counts a Gateway's hosts.
    pub fn hosts_of(gateway: &str) -> String {
        format!("{gateway}/hosts")
    }

    /// Returns the number of hosts, or `None` if the set does not count any.
    pub fn hosts(&self) -> Option<u32> {
        let counts = Self::counts_hosts(&self.name) && !self.endpoints.is_empty();
        counts.then(|| u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX))
    }

    /// Returns true if a set with this name counts a Gateway's hosts.
    pub fn counts_hosts(name: &str) -> bool {
        name.starts_with("Gateway/") && name.ends_with("/hosts")
    }
}
