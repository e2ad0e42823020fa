//! Backends that another backend replaces while they have no endpoints.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CustomClusterType, LbPolicy,
};
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
use envoy_types::util::pack_any;

const WITH_FALLBACK: &str = "/with-fallback";

pub(crate) fn name(backend: &str) -> String {
    format!("{backend}{WITH_FALLBACK}")
}

pub(super) fn only_chooses(cluster: &str) -> bool {
    cluster.ends_with(WITH_FALLBACK)
}

/// Chooses the first cluster unless it has no endpoints, or they are unhealthy. The chosen cluster
/// opens the connections, with its own settings.
pub(super) fn cluster(first: &Cluster, fallback: &str) -> Cluster {
    let config = ClusterConfig {
        clusters: vec![first.name.clone(), fallback.to_owned()],
    };
    Cluster {
        name: name(&first.name),
        connect_timeout: first.connect_timeout,
        circuit_breakers: first.circuit_breakers.clone(),
        per_connection_buffer_limit_bytes: first.per_connection_buffer_limit_bytes,
        typed_extension_protocol_options: first.typed_extension_protocol_options.clone(),
        lb_policy: LbPolicy::ClusterProvided.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(CustomClusterType {
            name: "envoy.clusters.aggregate".to_owned(),
            typed_config: Some(pack_any(config)),
        })),
        ..Default::default()
    }
}
