//! The sources of configuration.
//!
//! A source provides the desired configuration and its problems, and never touches Envoy's files.
//! `snapshots`, `bundles` and `cluster` provide resolved snapshots as an [`update::SourceUpdate`].

#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod acme;
pub mod bundles;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "cluster")]
pub mod join;
pub mod key_sets;
pub mod last_good;
pub mod local;
pub mod manifests;
pub mod problem;
#[cfg(feature = "cluster")]
pub mod reporter;
pub mod seal;
pub mod snapshots;
pub mod update;
pub mod watch;
mod way;
