//! Access to the host: files, processes, ports and limits. Depends on neither Envoy nor snapshots.

mod bind_check;
mod clock;
pub(crate) mod core_dumps;
pub(crate) mod credentials;
pub(crate) mod durable;
mod files;
pub(crate) mod free_ports;
pub mod inotify;
pub(crate) mod journald;
pub(crate) mod limits;
pub(crate) mod listening;
pub mod lock;
mod path_error;
pub(crate) mod port_owner;
pub(crate) mod privileged_ports;
pub mod processes;
pub mod reserve;
pub(crate) mod service_manager;

pub(crate) use bind_check::can_bind;
pub use path_error::PathError;

pub(crate) use clock::until;
pub(crate) use files::{
    create_directory, entries, give_directory, is_in_memory, remove_directory_if_exists,
    remove_if_exists, replace_file, write_file, written_by_agent,
};
