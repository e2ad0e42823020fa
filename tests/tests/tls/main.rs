//! Tests for certificates, private keys and trust with a real Envoy.

mod acme;
mod backend_tls;
mod certificates;
mod client_validation;
mod forwarded_certificates;
mod hostkeys;
mod http_proxies;
mod ingress_clients;
mod key_exchange;
mod last_good_certificates;
mod mesh;
mod rotation;
mod spire;
mod tls_listeners;
mod trust_bundles;
