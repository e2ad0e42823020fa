//! Resolves a cluster's Gateways, publishes them, and reports their status. Only the leader writes.

#![cfg_attr(test, allow(clippy::too_many_lines))]

mod acme;
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
mod salt_key;
mod serve;
mod statuses;
mod watch;
