//! Controls one Envoy: locates its binary, and starts, watches, replaces, stops and queries the
//! process.
//!
//! Submodules depend on each other in one direction: `process` ← `admin` ← `restart` ←
//! `supervisor`. The `supervisor` owns the process. Nothing here depends on routes. If the agent
//! crashes, its Envoy keeps running, and the next agent adopts that Envoy.

pub mod admin;
pub mod locate;
pub mod log;
pub mod process;
pub mod restart;
pub mod settings;
pub mod supervisor;
pub mod validate;

pub use admin::Admin;
pub use settings::{State, SupervisorConfig};
pub use supervisor::Supervisor;
