//! Access to the host: files, processes, ports and limits. Depends on neither Envoy nor snapshots.

#![cfg_attr(test, allow(clippy::too_many_lines))]

mod bind_check;
mod clock;
pub mod core_dumps;
pub mod credentials;
pub mod durable;
mod files;
pub mod free_ports;
pub mod inotify;
pub mod journald;
pub mod limits;
pub mod listening;
pub mod lock;
mod path_error;
pub mod port_owner;
pub mod privileged_ports;
pub mod processes;
pub mod reserve;
pub mod service_manager;

pub use bind_check::can_bind;
pub use path_error::PathError;

pub use clock::until;
pub use files::{
    create_directory, entries, give_directory, is_in_memory, remove_directory_if_exists,
    remove_if_exists, replace_file, write_file, written_by_agent,
};
