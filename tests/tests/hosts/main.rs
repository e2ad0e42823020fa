//! Tests for an agent on its host.

mod addresses;
mod agent_snapshot_dir;
mod apply;
mod batches;
mod bundles;
mod commands;
mod doctor;
mod export;
mod free_ports;
mod kept_addresses;
mod settings;
mod signed_snapshots;
