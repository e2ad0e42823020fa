//! Bundles with the real binary and Envoy, on a host that has no network: made, carried, applied, refused.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod damage;
mod forge;
mod refused;
mod serving;
mod signers;
mod site;
mod spans;
