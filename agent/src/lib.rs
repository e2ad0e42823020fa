//! Turns snapshots into the files that Envoy watches, and looks after that Envoy.
//!
//! The flow is `source` (snapshots) → the crate `sesame-render` (pure: snapshot to Envoy resources)
//! → `apply` (files, order, last accepted state) → `envoy` (process, admin socket). `quarantine`
//! finds the parts that Envoy refuses, and `publish` is the loop that publishes the rest.
//!
//! `run` ties them together, `doctor` and `collect` inspect a host, and `cli` is the command line.
//! Imports go one way: `host` ← `xds` ← `envoy` ← `apply` ← `quarantine` ← `publish` ← `run` ←
//! `doctor` ← `collect` ← `cli`; `source` imports only `host`.
//!
//! `seal` protects private keys on disk from readers of the disk alone. `reporter` writes the state
//! of `run` on this host to a cluster. `join` is separate: it makes this machine a host of a
//! cluster.

pub mod access_log;
pub mod apply;
pub mod cli;
mod collect;
pub mod doctor;
pub mod envoy;
mod handshake;
pub mod host;
#[cfg(feature = "cluster")]
mod join;
pub mod publish;
pub mod quarantine;
#[cfg(feature = "cluster")]
pub mod reporter;
pub mod run;
pub mod seal;
pub mod source;
mod tickets;
pub mod xds;
