//! Turns snapshots into the files that Envoy watches, and looks after that Envoy.
//!
//! The flow is `source` (where snapshots come from) → the crate `sesame-render` (pure: snapshot to Envoy resources) →
//! `apply` (files, order, last-accepted state) → `envoy` (process, admin socket); `quarantine` finds what Envoy refuses, and `publish` is the loop
//! that publishes the rest.
//! `run` ties them together, `doctor` and `collect` look at a host, `cli` is what people call. Imports go one way: `host` ←
//! `xds` ← `envoy` ← `apply` ← `quarantine` ← `publish` ← `run` ← `doctor` ← `collect` ← `cli`; `source` imports `host` alone.
//! `seal` keeps private keys on disk from who has only the disk.
//! `reporter` writes to a cluster what `run` says of this host.
//! `join` is apart: it makes a host one of a cluster's.

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
