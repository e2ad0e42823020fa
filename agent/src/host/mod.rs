//! The host under the agent: files, processes, ports and limits, as the kernel shows them.
//!
//! Every other room may ask it; it knows neither Envoy nor a snapshot.

mod bind_check;
pub(crate) mod credentials;
pub(crate) mod durable;
mod files;
pub mod inotify;
pub(crate) mod limits;
pub(crate) mod listening;
pub mod lock;
pub(crate) mod port_owner;
pub(crate) mod privileged_ports;
pub mod processes;
pub(crate) mod service_manager;

pub(crate) use bind_check::can_bind;
pub(crate) use files::{create_directory, entries, remove_if_there, replace_file, write_file};
