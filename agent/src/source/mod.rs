//! The sources of configuration.
//!
//! A source tells what is wanted and what is wrong with it; it never touches Envoy's files. `manifests` is a
//! directory of Gateway API YAML on the host, `last_good` keeps what was good of it across a restart. `local` are files of the
//! host that stand for Secrets and ConfigMaps.
//! `snapshots` (a directory), `bundles` (signed files) and `cluster` send snapshots that somebody else has resolved, as an
//! [`update::SourceUpdate`]. `watch` tells when
//! a directory changes.

pub mod bundles;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod last_good;
pub mod local;
pub mod manifests;
pub mod problem;
pub mod snapshots;
pub mod update;
pub mod watch;
mod way;
