//! Routes for TCP and TLS connections, and for UDP datagrams.

pub(crate) mod addresses;
pub(crate) mod udp;
pub(crate) mod weights;

use envoy_types::pb::envoy::config::listener::v3::{Filter, filter};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy,
    tcp_proxy::{ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight},
};
use envoy_types::util::pack_any;
use sesame_proto::schema::L4Route;

use self::weights::REFUSED_CLUSTER;
use crate::access_log::{self, LoggedPlace};
use crate::context::RenderContext;
use crate::rendered::RenderProblems;

/// Without a route, connections are closed.
pub(crate) fn tcp_proxy(
    place: LoggedPlace<'_>,
    route: Option<&L4Route>,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
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
    let place = LoggedPlace {
        route: route.map(|route| route.name.as_str()),
        ..place
    };
    filter(place, specifier, context)
}

pub(crate) fn refuse(place: LoggedPlace<'_>, context: &RenderContext<'_>) -> Filter {
    let nowhere = ClusterSpecifier::Cluster(REFUSED_CLUSTER.to_owned());
    filter(place, nowhere, context)
}

fn filter(
    place: LoggedPlace<'_>,
    specifier: ClusterSpecifier,
    context: &RenderContext<'_>,
) -> Filter {
    Filter {
        name: "envoy.filters.network.tcp_proxy".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(pack_any(TcpProxy {
            stat_prefix: format!("{}-{}", place.protocol, place.port),
            cluster_specifier: Some(specifier),
            access_log: access_log::of_connections(place, context),
            ..Default::default()
        }))),
    }
}
