//! Where the agent's objects come from.
//!
//! A source says what is wanted and what is wrong with it; it never touches Envoy's files. `manifests` is a
//! directory of Gateway API YAML on the host, `watch` tells when that directory changes, and `last_good`
//! keeps what was good across a restart.

pub mod last_good;
pub mod manifests;
pub mod problem;
pub mod watch;
