//! Turns snapshots into the files that Envoy watches, and looks after that Envoy.
//!
//! The flow is `source` (where snapshots come from) → the crate `sesame-render` (pure: snapshot to Envoy resources) →
//! `apply` (files, order, last-accepted state) → `envoy` (process, admin socket); `quarantine` finds what Envoy refuses.
//! `run` ties them together, `cli` is what people call. Imports go one way: `host` ← `xds` ← `envoy` ← `apply` ←
//! `quarantine` ← `run` ← `cli`; `source` imports `host` alone.

pub mod apply;
pub mod cli;
pub mod envoy;
pub mod host;
pub mod quarantine;
pub mod run;
pub mod source;
pub mod xds;
