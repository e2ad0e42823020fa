//! Routes of connections and datagrams.

use envoy_types::pb::envoy::config::listener::v3::{Filter, filter};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy,
    tcp_proxy::{ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight},
};
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::{
    Route as UdpRoute, UdpProxyConfig, udp_proxy_config::RouteSpecifier,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::core::v3::TypedExtensionConfig;
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher,
    matcher::{OnMatch, on_match},
};
use envoy_types::util::pack_any;
use sesame_proto::schema::{L4Route, Port};

use super::{Context, Problem, REFUSED_CLUSTER, weights};

/// Sends connections to the route's backends; closes them without a route.
pub(super) fn tcp_proxy(
    protocol: &str,
    port: u32,
    route: Option<&L4Route>,
    context: &Context<'_>,
    problems: &mut Vec<Problem>,
) -> Filter {
    let shares = route.map_or_else(Vec::new, |route| {
        weights::shares(&route.name, &route.backends, context, problems)
    });
    let specifier = match shares.as_slice() {
        [] => ClusterSpecifier::Cluster(REFUSED_CLUSTER.to_owned()),
        [only] => ClusterSpecifier::Cluster(only.cluster.to_owned()),
        several => ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: several
                .iter()
                .map(|share| ClusterWeight {
                    name: share.cluster.to_owned(),
                    weight: share.weight,
                    ..Default::default()
                })
                .collect(),
        }),
    };
    filter(protocol, port, specifier)
}

/// Closes every connection.
pub(super) fn refuse(port: u32) -> Filter {
    filter(
        "tcp",
        port,
        ClusterSpecifier::Cluster(REFUSED_CLUSTER.to_owned()),
    )
}

fn filter(protocol: &str, port: u32, specifier: ClusterSpecifier) -> Filter {
    Filter {
        name: "envoy.filters.network.tcp_proxy".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(pack_any(TcpProxy {
            stat_prefix: format!("{protocol}-{port}"),
            cluster_specifier: Some(specifier),
            ..Default::default()
        }))),
    }
}

/// Sends datagrams to the first route's first backend of positive weight: Envoy's UDP proxy knows no shares.
pub(super) fn udp_proxy(port: &Port, context: &Context<'_>, problems: &mut Vec<Problem>) -> Any {
    let mut cluster = REFUSED_CLUSTER;
    if let Some(route) = port.listeners.iter().find_map(|l| l.l4_routes.first()) {
        let shares = weights::shares(&route.name, &route.backends, context, problems);
        if shares.len() > 1 {
            problems.push(Problem::new(
                &route.name,
                format!(
                    "{} backends have weight; datagrams go to one, the first is used",
                    shares.len()
                ),
            ));
        }
        cluster = shares
            .first()
            .map_or(REFUSED_CLUSTER, |share| share.cluster);
    }
    let route = UdpRoute {
        cluster: cluster.to_owned(),
    };
    pack_any(UdpProxyConfig {
        stat_prefix: format!("udp-{}", port.port),
        route_specifier: Some(RouteSpecifier::Matcher(Matcher {
            on_no_match: Some(Box::new(OnMatch {
                on_match: Some(on_match::OnMatch::Action(TypedExtensionConfig {
                    name: "route".to_owned(),
                    typed_config: Some(pack_any(route)),
                })),
                ..Default::default()
            })),
            ..Default::default()
        })),
        ..Default::default()
    })
}
