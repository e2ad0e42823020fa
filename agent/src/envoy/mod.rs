//! One Envoy process: finding its binary, starting, watching, stopping and asking it.
//!
//! Nothing here knows what a route is. An agent that dies leaves its Envoy running, and the next one adopts
//! it.

pub mod admin;
mod admin_http;
mod first_load;
pub mod identity;
pub mod locate;
pub mod log;
pub mod process;
pub mod stop;
pub mod supervisor;
mod supervisor_config;
pub mod validate;

pub use admin::Admin;
pub use supervisor::{State, Supervisor};
pub use supervisor_config::{Backoff, SupervisorConfig};
