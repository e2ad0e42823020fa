//! The sources of configuration.
//!
//! A source provides the desired configuration and its problems, and never touches Envoy's files.
//! `manifests` is a directory of Gateway API YAML on the host, and `last_good` keeps the last good
//! versions across a restart. `local` reads files on the host that replace Secrets and ConfigMaps.
//! `snapshots` (a directory), `bundles` (signed files) and `cluster` provide resolved snapshots, as
//! an [`update::SourceUpdate`]. `watch` reports changes in a directory.

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
