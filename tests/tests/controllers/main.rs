//! Tests for the controller against a real API server.

mod adoption;
mod backends;
mod classes;
mod configuration;
mod definitions;
mod events;
mod experimental;
mod faults;
mod fleets;
mod http_proxies;
mod ingresses;
mod layers;
mod page;
mod publish;
mod publishing;
mod releases;
mod scale;
mod services;
mod sets;
mod status;
mod telemetry;
mod trust_bundles;
mod upstream;
