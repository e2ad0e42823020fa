//! Tests for complete renderings. They also run a real Envoy if one is available.

mod access_checks;
mod backend_changes;
mod backend_settings;
mod changes;
mod credentials;
mod envoy;
mod every_route;
pub(crate) mod everything;
mod external_auth;
mod hostile;
mod hostile_filters;
mod http3;
mod l4_addresses;
mod left_out;
mod logins;
pub(crate) mod parts;
mod passwords;
mod proxy_protocol;
mod rate_limits;
mod rendering;
mod routes;
mod service_limits;
mod shared_filters;
mod tls_parameters;
