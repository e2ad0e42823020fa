//! Code shared by the demo and the tests: echo backends, certificates, an HTTP client, generated
//! files, and the location of the real Envoy.
//!
//! An echo backend describes the received request in its response, so tests can check a proxy's
//! changes. The client sends individual requests, optionally over TLS or HTTP/2. All traffic stays
//! on the loopback interface. Setup failures panic with the cause, because a test that cannot start
//! must not pass.
//!
//! ```
//! use sesame_kit::backend::Backend;
//! use sesame_kit::client::Request;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backend = Backend::start("blue").await;
//! let request = Request::get(backend.address(), "demo.example.com", "/cart?id=1");
//! let echo = request.header("x-user", "alice").send().await?.echo();
//! assert_eq!((echo.backend.as_str(), echo.path.as_str()), ("blue", "/cart?id=1"));
//! assert_eq!(echo.value("x-user"), Some("alice"));
//! assert_eq!(backend.count(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! This crate must not depend on the agent or a cluster, so that `make demo` builds quickly.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "in tests, a panic reports the failure"
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
