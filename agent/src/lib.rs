//! The programs of a gateway host: the command line of `sesame-agent`, checks of the host, and data
//! for bug reports.
//!
//! Crates depend only on crates further to the left: `sesame-host` and `sesame-render` ←
//! `sesame-envoy` ← `sesame-apply` ← `sesame-engine` ← this crate. Of these, `sesame-sources` depends
//! only on `sesame-host`.

#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod cli;
mod collect;
pub mod doctor;
