//! Tests of complete renderings. They also run a real Envoy if one is available.

mod backend_changes;
mod backend_settings;
mod changes;
mod envoy;
mod every_route;
pub(crate) mod everything;
mod hostile;
mod hostile_filters;
mod l4_addresses;
mod left_out;
pub(crate) mod parts;
mod rate_limits;
mod rendering;
mod routes;
mod shared_filters;
mod tls_parameters;
