//! Bundles with the real binary and Envoy on a host without a network: created, transferred,
//! applied and rejected.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod damage;
mod forge;
mod refused;
mod serving;
mod signers;
mod site;
mod spans;
