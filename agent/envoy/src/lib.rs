//! Locates, starts, supervises, replaces and queries one Envoy.
//!
//! Submodules depend on each other in one direction: `process` ← `admin` ← `restart` ←
//! `supervisor`. If the agent crashes, its Envoy keeps running, and the next agent adopts it.

#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod access_log;
pub mod admin;
pub mod handshake;
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
