//! The cluster whose members are the Gateway's live hosts.
//!
//! Envoy divides fleet limits by the number of members, and never connects to them. Envoy requires
//! this cluster to be in the bootstrap; its members are in a file.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use bytes::Bytes;
use envoy_types::pb::envoy::config::bootstrap::v3::ClusterManager;
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3::socket_address::Protocol;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use prost::Message as _;
use sesame_proto::schema::EndpointSet;

use crate::context::RenderOptions;
use crate::{config_sources, wrappers};

/// Name of the cluster.
pub const CLUSTER: &str = "sesame_fleet";

/// The number of members, which Envoy reads from its statistics.
pub(crate) const MEMBERS: &str = "cluster.sesame_fleet.membership_total";

/// Reserved for documentation (RFC 5737).
const PLACEHOLDER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Returns the number of live hosts, at least one.
pub(crate) fn hosts(endpoints: &[EndpointSet], options: &RenderOptions) -> u32 {
    let counted = endpoints.iter().find_map(EndpointSet::hosts);
    let hosts = counted.unwrap_or(options.fleet_hosts);
    hosts.clamp(1, EndpointSet::MAX_HOSTS)
}

/// Returns the `ClusterLoadAssignment` with one member for each live host.
pub fn members(hosts: u32) -> Bytes {
    assignment(hosts).encode_to_vec().into()
}

pub(crate) fn manager() -> ClusterManager {
    ClusterManager {
        local_cluster_name: CLUSTER.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn in_file(path: &Path) -> Cluster {
    Cluster {
        name: CLUSTER.to_owned(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Eds.into(),
        )),
        eds_cluster_config: Some(cluster::EdsClusterConfig {
            eds_config: Some(config_sources::file(path)),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(crate) fn alone() -> Cluster {
    Cluster {
        name: CLUSTER.to_owned(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Static.into(),
        )),
        load_assignment: Some(assignment(1)),
        ..Default::default()
    }
}

fn assignment(hosts: u32) -> ClusterLoadAssignment {
    let member = |port| LbEndpoint {
        host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(Endpoint {
            address: Some(wrappers::socket(PLACEHOLDER, port, Protocol::Tcp)),
            ..Default::default()
        })),
        ..Default::default()
    };
    let hosts = hosts.clamp(1, EndpointSet::MAX_HOSTS);
    ClusterLoadAssignment {
        cluster_name: CLUSTER.to_owned(),
        endpoints: vec![LocalityLbEndpoints {
            lb_endpoints: (1..=hosts).map(member).collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}
