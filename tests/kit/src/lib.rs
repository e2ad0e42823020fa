//! Parts that the demo and the tests have in common: echo backends, certificates, a client, and where the real Envoy is. It
//! must need neither an agent nor a cluster, so that `make demo` has little to build.
//!
//! All traffic stays on the loopback. Whatever cannot be set up panics and says why: a test that cannot start must not
//! pass.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "this library only serves tests, where a panic is the report"
)]

pub mod backend;
pub mod certs;
pub mod client;
pub mod demo;
pub mod echo;
pub mod envoy;
pub mod grpc;
pub mod processes;
pub mod wait;
