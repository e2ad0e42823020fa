//! Generates CRDs from Rust types.

mod access_policy;
mod backend_policy;
mod configuration;
mod contour;
mod contour_limits;
mod mesh_policies;
mod policy;
mod route_filter;
mod schema;
mod traffic_policy;

pub use self::access_policy::access_policy_definition;
pub use self::backend_policy::backend_policy_definition;
pub use self::configuration::configuration_definition;
pub use self::contour::{
    certificate_delegation_definition, extension_service_definition, http_proxy_definition,
};
pub use self::mesh_policies::{mesh_ocg_policy_definition, mesh_policy_definition};
pub use self::route_filter::route_filter_definition;
pub use self::traffic_policy::traffic_policy_definition;
