//! Bundles on a host without a network. A real agent creates, applies and rejects them, and a real
//! Envoy serves them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod damage;
mod forge;
mod refused;
mod serving;
mod signers;
mod site;
mod spans;
