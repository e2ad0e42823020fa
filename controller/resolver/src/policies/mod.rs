//! Policies attached to Gateways, ListenerSets, routes and backends.

pub(super) mod key_sets;
pub(crate) mod targets;
pub(crate) mod traffic;
