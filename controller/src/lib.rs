//! Resolves a cluster's Gateways, publishes them, and reports their status.
//!
//! `watch` reads the cluster's objects, and `engine` resolves them on a separate thread. `publish`
//! writes ConfigMaps and Secrets, `report` writes statuses, and `provision` writes a Service for
//! each Gateway. These three write only while `lead` holds the Lease. `configuration` provides the
//! settings. `hosts` and `adopt` are separate operator commands, for hosts outside the cluster and
//! for existing fleets.

mod adopt;
mod changes;
pub mod cli;
mod configuration;
mod connection;
mod engine;
mod finalizer;
mod fleet_roles;
mod hosts;
mod key_sets;
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
