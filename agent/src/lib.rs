//! Turns snapshots into the files that Envoy watches, and looks after that Envoy.
//!
//! The flow is `source` (where snapshots come from) → `render` (pure: snapshot to Envoy resources) →
//! `apply` (files, order, last-accepted state) → `envoy` (process, admin socket). `run` ties them
//! together, `cli` is what people call.

pub mod apply;
pub mod cli;
pub mod envoy;
mod host_limits;
pub mod quarantine;
pub mod run;
pub mod source;
