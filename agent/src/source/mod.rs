//! The sources of configuration.
//!
//! A source provides the desired configuration and its problems, and never touches Envoy's files.
//! `snapshots`, `bundles` and `cluster` provide resolved snapshots as an [`update::SourceUpdate`].

pub mod bundles;
#[cfg(feature = "cluster")]
pub mod cluster;
pub(crate) mod key_sets;
pub mod last_good;
pub mod local;
pub mod manifests;
pub mod problem;
pub mod snapshots;
pub mod update;
pub mod watch;
mod way;
