//! The kinds of Gateway API v1.5 to v1.7, and the few other kinds that resolution reads, as plain
//! data types.
//!
//! Each concept has one Rust type, which all route kinds share. Enums are open, so that objects
//! with unknown values from newer API releases can still be decoded. Resolution reports such values
//! in conditions. This module makes no decisions.

mod access_certificates;
mod access_credentials;
mod access_csrf;
mod access_log;
mod access_parts;
mod access_policy;
mod backend_policy;
mod backends;
mod certificate_delegation;
mod configuration;
mod core;
mod enums;
mod extension_service;
mod field_path;
mod filters;
mod fleet;
mod gateway;
mod http_proxy;
mod http_proxy_authorization;
mod http_proxy_balance;
mod http_proxy_cookies;
mod http_proxy_descriptors;
mod http_proxy_services;
mod http_proxy_tls;
mod http_proxy_tokens;
mod ingress;
mod ingress_settings;
mod labels;
mod mesh;
mod meta;
mod metrics;
mod nginx;
mod policy;
mod request_filters;
mod route_filter;
mod routes;
mod telemetry;
mod traffic_policy;
mod unknown;

pub use self::access_certificates::*;
pub use self::access_credentials::*;
pub use self::access_csrf::*;
pub use self::access_log::*;
pub use self::access_parts::*;
pub use self::access_policy::*;
pub use self::backend_policy::*;
pub use self::backends::*;
pub use self::certificate_delegation::*;
pub use self::configuration::*;
pub use self::core::*;
pub use self::enums::*;
pub use self::extension_service::*;
pub use self::field_path::{FieldPath, PathStep};
pub use self::filters::*;
pub use self::fleet::*;
pub use self::gateway::*;
pub use self::http_proxy::*;
pub use self::http_proxy_authorization::*;
pub use self::http_proxy_balance::*;
pub use self::http_proxy_cookies::*;
pub use self::http_proxy_descriptors::*;
pub use self::http_proxy_services::*;
pub use self::http_proxy_tls::*;
pub use self::http_proxy_tokens::*;
pub use self::ingress::*;
pub use self::ingress_settings::*;
pub use self::labels::*;
pub use self::mesh::*;
pub use self::meta::*;
pub use self::metrics::*;
pub use self::nginx::*;
pub use self::policy::*;
pub use self::request_filters::*;
pub use self::route_filter::*;
pub use self::routes::*;
pub use self::telemetry::*;
pub use self::traffic_policy::*;
pub use self::unknown::{UnknownField, UnknownFields};
