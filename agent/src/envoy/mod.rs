//! Locates, starts, supervises, replaces and queries one Envoy.
//!
//! Submodules depend on each other in one direction: `process` ← `admin` ← `restart` ←
//! `supervisor`. If the agent crashes, its Envoy keeps running, and the next agent adopts it.

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
