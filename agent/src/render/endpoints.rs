//! Endpoint sets: an EDS file each, or inline in their cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;

use envoy_types::pb::envoy::config::core::v3::socket_address::Protocol;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint as EnvoyEndpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use prost::Message as _;
use sesame_proto::schema::{AppProtocol, Backend, Endpoint, EndpointSet};

use super::{Context, Problem, Resource, wrappers};

/// Endpoint sets by name.
pub(super) type Sets<'a> = BTreeMap<&'a str, &'a EndpointSet>;

pub(super) fn sets(endpoints: &[EndpointSet]) -> Sets<'_> {
    endpoints.iter().map(|s| (s.name.as_str(), s)).collect()
}

/// The endpoint sets of which at least one cluster reads a file.
pub(super) fn render(
    backends: &[&Backend],
    sets: &Sets<'_>,
    context: &Context<'_>,
) -> Vec<Resource> {
    // By name, so that the clusters that share a set share its file.
    let read: BTreeMap<&str, &Backend> = backends
        .iter()
        .filter(|b| {
            context.subscriptions.endpoints.contains(b.name.as_str())
                && context.clusters.contains(b.name.as_str())
        })
        .map(|b| (b.endpoints.as_str(), *b))
        .collect();
    read.into_iter()
        .map(|(name, backend)| Resource {
            name: name.to_owned(),
            bytes: assignment(name, sets.get(name).copied(), backend.protocol())
                .encode_to_vec()
                .into(),
        })
        .collect()
}

/// Endpoints that are none. Envoy would refuse the whole set.
pub(super) fn check(endpoints: &[EndpointSet], problems: &mut Vec<Problem>) {
    for EndpointSet { name, endpoints } in endpoints {
        for endpoint in endpoints {
            if let Err(reason) = socket(endpoint) {
                problems.push(Problem::new(name, format!("{reason}; it is left out")));
            }
        }
    }
}

fn socket(Endpoint { address, port }: &Endpoint) -> Result<(IpAddr, u32), String> {
    if !(1..=65_535).contains(port) {
        return Err(format!("endpoint {address}: port {port} is not 1 to 65535"));
    }
    match address.parse() {
        Ok(address) => Ok((address, *port)),
        Err(_) => Err(format!("endpoint `{address}` is not an IP address")),
    }
}

/// A set in Envoy's words; without endpoints where the snapshot has none.
pub(super) fn assignment(
    name: &str,
    set: Option<&EndpointSet>,
    protocol: AppProtocol,
) -> ClusterLoadAssignment {
    let protocol = match protocol {
        AppProtocol::UdpDatagrams => Protocol::Udp,
        AppProtocol::Http1
        | AppProtocol::Http2
        | AppProtocol::Websocket
        | AppProtocol::TcpBytes => Protocol::Tcp,
    };
    let lb_endpoints: Vec<_> = set
        .into_iter()
        .flat_map(|set| &set.endpoints)
        .filter_map(|endpoint| socket(endpoint).ok())
        .map(|(address, port)| LbEndpoint {
            host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(EnvoyEndpoint {
                address: Some(wrappers::socket(address.to_string(), port, protocol)),
                ..Default::default()
            })),
            ..Default::default()
        })
        .collect();
    ClusterLoadAssignment {
        cluster_name: name.to_owned(),
        endpoints: if lb_endpoints.is_empty() {
            Vec::new()
        } else {
            vec![LocalityLbEndpoints {
                lb_endpoints,
                ..Default::default()
            }]
        },
        ..Default::default()
    }
}
