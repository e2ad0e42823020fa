//! Where the agent's objects come from.
//!
//! A source says what is wanted and what is wrong with it; it never touches Envoy's files. `manifests` is a
//! directory of Gateway API YAML on the host, `last_good` keeps what was good of it across a restart.
//! `snapshots` and `cluster` hand over snapshots that somebody else has resolved, as a [`update::SourceUpdate`]. `watch` tells when
//! a directory changes.

#[cfg(feature = "cluster")]
pub mod cluster;
pub mod last_good;
pub mod manifests;
pub mod problem;
pub mod snapshots;
pub mod update;
pub mod watch;
