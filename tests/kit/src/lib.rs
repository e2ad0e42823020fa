//! Code shared by the demo and the tests: echo backends, certificates, a client, generated files,
//! and the location of the real Envoy. It must not depend on the agent or a cluster, to keep the build of `make
//! demo` small.
//!
//! All traffic stays on the loopback. Any setup failure panics with its cause, because a test that
//! cannot start must not pass.
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
pub mod generated;
pub mod grpc;
pub mod processes;
pub mod wait;
