//! State of one Gateway on one host, as reported by the host's agent.

use std::fmt;

use serde::{Deserialize, Serialize};

/// State of a Gateway on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AgentState {
    /// Envoy serves the newest configuration.
    Serving,
    /// Envoy is being updated to the newest configuration.
    #[default]
    Applying,
    /// Envoy serves traffic, but not everything: it rejected a part, or the configuration source
    /// cannot be read.
    Degraded,
    /// Nothing is served.
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
