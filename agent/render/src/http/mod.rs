//! HTTP: the connection manager, route tables, and all that a route may say.
//!
//! One bad route must never cost the others: Envoy refuses a whole table for it, so it is checked and left out here.

mod answers;
pub(crate) mod auth_headers;
mod backend_rewrites;
mod cors;
mod external_auth;
mod forward;
pub(crate) mod hcm;
pub(crate) mod headers;
mod matches;
mod mirrors;
mod paths;
mod redirects;
mod refusing;
mod retries;
pub(crate) mod route_tables;
mod routes;
pub(crate) mod sessions;
mod tracing;
