//! Policies that target Gateways, ListenerSets, routes and backends.

pub(crate) mod targets;
pub(crate) mod traffic;
