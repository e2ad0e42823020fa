//! One Envoy process: finding its binary, starting, watching, stopping and asking it.
//!
//! Nothing here knows what a route is. An agent that dies leaves its Envoy running, and the next one adopts
//! it.

mod actor;
pub mod admin;
pub mod answers;
pub mod identity;
pub mod launch;
pub mod launcher;
pub mod locate;
pub mod log;
pub mod process;
mod replace;
pub mod restart;
pub mod settings;
pub mod stop;
pub mod supervisor;
pub mod validate;

pub use admin::Admin;
pub use settings::{State, SupervisorConfig};
pub use supervisor::Supervisor;
