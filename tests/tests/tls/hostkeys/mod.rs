//! Private keys on a host. They are sealed on its disks, and deleted when they are revoked.

mod everywhere;
mod found;
mod local_files;
mod memory;
mod renewed;
mod requests;
mod sealed;
