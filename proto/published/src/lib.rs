//! Objects through which a controller and its agents communicate in a cluster. This crate defines
//! their names, the format of an agent's report, and access to the API server.
//!
//! A controller publishes each Gateway's snapshot as ConfigMaps and its keys as Secrets. The agent
//! on each host reads these objects, and reports the host's state in a GatewayAgent. All of these
//! objects are in Sesame's own namespace. Controllers write ConfigMaps and Secrets only in this
//! namespace, and agents read them only from this namespace.
//!
//! ```
//! use sesame_kinds::api::NamespacedName;
//! use sesame_published::names::{agent_name, key_secret_name, manifest_name, shard_name};
//!
//! let edge = NamespacedName::new("shop", "edge");
//! assert_eq!(manifest_name(&edge), "shop.edge.manifest");
//! assert_eq!(shard_name(&edge, "endpoints-1-0"), "shop.edge.endpoints-1-0");
//! assert_eq!(key_secret_name(&edge, 0), "shop.edge.keys-0");
//! assert_eq!(agent_name(&edge, "node-1"), "shop.edge.node-1");
//!
//! // If names differ only in characters that are invalid in object names, a digest keeps them distinct.
//! assert_ne!(agent_name(&edge, "Node_1"), agent_name(&edge, "node_1"));
//! ```

#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod credential;
mod definitions;
mod gateway_agent;
pub mod host_access;
pub mod join_token;
pub mod kubeconfig;
pub mod names;

pub use self::definitions::{
    access_policy_definition, backend_policy_definition, certificate_delegation_definition,
    configuration_definition, extension_service_definition, http_proxy_definition,
    mesh_ocg_policy_definition, mesh_policy_definition, route_filter_definition,
    traffic_policy_definition,
};
pub use self::gateway_agent::{
    GatewayAgent, GatewayAgentSpec, GatewayAgentStatus, IntervalTraffic, MAX_ENTRIES,
    MAX_REPORT_SECONDS, MAX_REPORTED_ADDRESSES, MAX_RULES, MAX_TEXT, RefusedListener,
    RefusedObject, RefusedRoute, RefusedRule, STATUS_MANAGER, UnshownCertificate, UnusableAddress,
};
