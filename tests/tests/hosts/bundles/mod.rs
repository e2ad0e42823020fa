//! Bundles on a host without a network. The real agent and Envoy are used to create, transfer,
//! apply and reject them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod damage;
mod forge;
mod refused;
mod serving;
mod signers;
mod site;
mod spans;
