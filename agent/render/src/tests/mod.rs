//! Tests of all that is rendered; a real Envoy is asked where there is one.

mod backend_changes;
mod changes;
mod envoy;
mod every_route;
pub(crate) mod everything;
mod hostile;
mod left_out;
pub(crate) mod parts;
mod rendering;
mod routes;
mod tls_parameters;
