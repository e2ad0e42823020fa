//! What controllers and agents share of a cluster: how its API server is found, what published objects are called,
//! and what agents report.
//!
//! Everything that is published lives in one namespace of Sesame's own, so that a controller writes ConfigMaps and
//! Secrets nowhere else, and an agent reads nobody else's.

mod gateway_agent;
pub mod kubeconfig;
pub mod names;

pub use self::gateway_agent::{
    GatewayAgent, GatewayAgentSpec, GatewayAgentStatus, MAX_ENTRIES, MAX_REPORTED_ADDRESSES,
    MAX_RULES, MAX_TEXT, RefusedListener, RefusedObject, RefusedRoute, RefusedRule, STATUS_MANAGER,
    UnusableAddress,
};
