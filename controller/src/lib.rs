//! Resolves the Gateways of a cluster, and publishes them and their statuses.
//!
//! The flow is `watch` (what the cluster holds) → `engine` (resolves it, on a thread of its own) → `publish` (ConfigMaps and
//! Secrets), `report` (statuses) and `provision` (a Service for each Gateway). They write only while `lead` says so.
//! `configuration` says by which settings. `hosts` and `adopt` are apart: commands of an operator, about hosts
//! outside the cluster and fleets that are there already.

mod adopt;
mod changes;
pub mod cli;
mod configuration;
mod connection;
mod engine;
mod finalizer;
mod fleet_roles;
mod hosts;
mod lead;
mod ocg_bundles;
mod provision;
mod publish;
mod replica;
mod report;
mod retry;
mod run;
mod serve;
mod statuses;
mod watch;
