//! Resolves Gateway API objects into snapshots and statuses.
//!
//! The flow is `api` (types and decoding) → `world` (the objects of one moment) → `resolve` (a pure
//! function) → snapshots, keys and conditions. Nothing of these opens a file or a socket, reads a clock or
//! draws a random number, so that the same objects give the same bytes on any machine.
//!
//! With the feature `cluster` there is the controller around them: `watch` (what the cluster holds) → `engine` (resolves
//! it, on a thread of its own) → `publish` (ConfigMaps and Secrets), `report` (statuses) and `provision` (a Service for
//! each Gateway). They write only while `lead` says so.

pub mod api;
#[cfg(feature = "cluster")]
pub mod cli;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "cluster")]
mod connection;
#[cfg(feature = "cluster")]
mod engine;
pub mod expiry;
#[cfg(feature = "cluster")]
mod finalizer;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "cluster")]
mod lead;
#[cfg(feature = "cluster")]
mod provision;
#[cfg(feature = "cluster")]
mod publish;
#[cfg(feature = "cluster")]
mod report;
pub mod resolve;
#[cfg(feature = "cluster")]
mod run;
#[cfg(feature = "cluster")]
mod serve;
pub mod status;
#[cfg(feature = "cluster")]
mod watch;
pub mod world;
