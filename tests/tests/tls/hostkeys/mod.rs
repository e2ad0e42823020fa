//! Private keys on a host: sealed on disk, and deleted when revoked.

mod everywhere;
mod found;
mod local_files;
mod memory;
mod renewed;
mod requests;
mod sealed;
