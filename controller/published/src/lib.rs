//! Shared by controllers and agents: how to find a cluster's API server, the names of published
//! objects, and the format of an agent's report.
//!
//! All published objects are in Sesame's own namespace, so a controller writes ConfigMaps and
//! Secrets nowhere else, and an agent reads no others.

mod configuration_definition;
pub mod credential;
mod definition_schema;
mod gateway_agent;
pub mod host_access;
pub mod join_token;
pub mod kubeconfig;
mod mesh_policy_definition;
pub mod names;

pub use self::configuration_definition::configuration_definition;
pub use self::gateway_agent::{
    GatewayAgent, GatewayAgentSpec, GatewayAgentStatus, MAX_ENTRIES, MAX_REPORT_SECONDS,
    MAX_REPORTED_ADDRESSES, MAX_RULES, MAX_TEXT, RefusedListener, RefusedObject, RefusedRoute,
    RefusedRule, STATUS_MANAGER, UnshownCertificate, UnusableAddress,
};
pub use self::mesh_policy_definition::{mesh_ocg_policy_definition, mesh_policy_definition};
