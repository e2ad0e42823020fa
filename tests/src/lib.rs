//! Code shared by tests. All traffic stays on the loopback interface. Setup failures panic, because
//! a test whose setup fails must not pass.

pub use sesame_kit::{backend, certs, client, demo, echo, envoy, generated, grpc, processes, wait};

pub mod agent;
pub mod authorizing;
pub mod backends;
pub mod browser;
pub mod checks;
pub mod clock;
pub mod cloud;
pub mod cluster;
pub mod collecting;
pub mod collecting_logs;
pub mod controller;
pub mod datagrams;
pub mod deployed;
pub mod envoy_files;
pub mod followed;
pub mod golden;
pub mod guarded;
pub mod handshakes;
pub mod http2;
pub mod http3;
pub mod issuing;
pub mod itself;
pub mod joining;
pub mod load;
mod logs;
pub mod manifests;
pub mod mixed;
pub mod network;
pub mod ocsp;
pub mod pinned;
pub mod ports;
pub mod publications;
pub mod rendering;
pub mod reports;
pub mod seeded;
pub mod shared_port;
pub mod slowness;
pub mod streams;
pub mod tokens;
mod turns;
