//! HTTP: the connection manager, route tables, and all route features.
//!
//! One invalid route must never affect others, so routes that Envoy would reject are left out.

mod address_filters;
mod answers;
mod auth_context;
pub(crate) mod auth_headers;
mod authorization;
mod backend_rewrites;
mod certificates;
pub(crate) mod composite;
mod cors;
mod credentials;
mod csrf;
mod external_auth;
mod forward;
mod forwarded_certificates;
pub(crate) mod hcm;
pub(crate) mod headers;
pub(crate) mod http3;
mod internal_redirect;
mod matches;
mod mirrors;
mod paths;
mod rate_limit_keys;
pub(crate) mod rate_limits;
mod redirects;
mod refusing;
pub(crate) mod request_filters;
mod retries;
pub(crate) mod route_tables;
mod routes;
pub(crate) mod sessions;
pub(crate) mod shared_filters;
mod tokens;
mod tracing;
