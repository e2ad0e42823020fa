use std::fmt;

use serde::{Deserialize, Serialize};

/// State of a Gateway on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AgentState {
    /// Envoy has applied the newest configuration.
    Serving,
    /// Envoy has not yet applied the newest configuration.
    #[default]
    Applying,
    /// Envoy serves traffic, but rejected part of the configuration, or the configuration source
    /// cannot be read.
    Degraded,
    /// Envoy serves no traffic.
    Down,
}

impl AgentState {
    /// All states, from the best to the worst.
    pub const ALL: [Self; 4] = [Self::Serving, Self::Applying, Self::Degraded, Self::Down];
}

impl fmt::Display for AgentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
