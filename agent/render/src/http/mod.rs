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
pub(crate) mod client_addresses;
pub(crate) mod composite;
mod cors;
mod credentials;
mod csrf;
mod descriptors;
mod error_pages;
mod exempt_clients;
mod external_auth;
mod forward;
mod forwarded_certificates;
pub(crate) mod hcm;
pub(crate) mod headers;
pub(crate) mod http3;
mod injected;
mod internal_redirect;
mod matches;
mod mirrors;
pub(crate) mod oidc;
pub(crate) mod passwords;
mod paths;
pub(crate) mod protocol_options;
mod rate_limit_keys;
pub(crate) mod rate_limits;
mod redirects;
mod refusing;
pub(crate) mod request_filters;
mod retries;
mod route_filter;
pub(crate) mod route_tables;
mod routes;
mod service_limits;
pub(crate) mod sessions;
pub(crate) mod shared_filters;
mod tokens;
mod tracing;
