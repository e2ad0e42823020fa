//! Tests of routes and listeners with a real agent and a real Envoy: which requests go to which
//! backends, and how they are modified.

mod access_policies;
mod access_services;
mod access_tokens;
mod backend_rewrites;
mod backend_settings;
mod explain;
mod external_auth;
mod fail_closed;
mod grpc_routes;
mod http_backends;
mod http_filters;
mod http_listeners;
mod http_matches;
mod http_proxies;
mod http_proxy_routes;
mod http_proxy_services;
mod http_proxy_tokens;
mod ingress_nginx;
mod ingresses;
mod key_sets;
mod l4_routes;
mod layers;
mod listener_sets;
mod rate_limits;
mod regexes;
mod request_filters;
mod retries_and_sessions;
mod route_filters;
mod upstream_manifests;
