//! Tests with an API server, a controller and agents.

mod acme;
mod agent_cluster;
mod chart;
mod chart_in_a_cluster;
mod cluster_certificates;
mod cluster_path;
mod cluster_survival;
mod fleet_limits;
mod hostile_reports;
mod join_tokens;
mod joining;
mod key_access;
mod kubectl_plugin;
mod merged_gateways;
mod mesh_trust;
mod network_policies;
mod policies;
mod skew;
mod staged_rollout;
mod test_cluster;
