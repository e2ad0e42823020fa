//! Bundles on a host without a network.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod damage;
mod forge;
mod refused;
mod rings;
mod serving;
mod signers;
mod site;
mod spans;
