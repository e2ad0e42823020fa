//! Everything about one Envoy: finding its binary, and starting, watching, replacing, stopping and
//! querying it.
//!
//! `process` ← `admin` ← `restart` ← `supervisor`, which owns the process. Nothing here knows about
//! routes. An agent that crashes leaves its Envoy running, and the next one adopts it.

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
