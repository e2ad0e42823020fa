//! Controls one Envoy: locates its binary, and starts, watches, replaces, stops and queries the
//! process.
//!
//! Imports go one way: `process` ← `admin` ← `restart` ← `supervisor`, which owns the process.
//! Nothing here knows about routes. An agent that crashes leaves its Envoy running, and the next
//! agent adopts it.

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
