//! Routes for UDP datagrams.
//!
//! Envoy's UDP proxy does not support weights, so a hash of the client's port selects the backend
//! of a session. A client that always uses the same port always gets the same backend.

use envoy_types::pb::envoy::config::core::v3::UdpSocketConfig;
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::{
    Route, UdpProxyConfig, udp_proxy_config::RouteSpecifier,
};
use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::SourcePortInput;
use envoy_types::pb::envoy::extensions::matching::input_matchers::consistent_hashing::v3::ConsistentHashing;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::core::v3::TypedExtensionConfig;
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher,
    matcher::{
        MatcherList, MatcherType, OnMatch,
        matcher_list::{
            FieldMatcher, Predicate,
            predicate::{
                MatchType, SinglePredicate, single_predicate::Matcher as PredicateMatcher,
            },
        },
        on_match,
    },
};
use envoy_types::util::pack_any;
use prost::Name;
use sesame_proto::schema::{Listener, Port};

use super::weights::{self, REFUSED_CLUSTER, Share};
use crate::access_log::{self, LoggedPlace};
use crate::context::RenderContext;
use crate::rendered::RenderProblems;
use crate::wrappers;

/// Maximum size of a UDP datagram over IPv4 or IPv6. By default, Envoy drops datagrams above 1,500
/// bytes.
const LONGEST_DATAGRAM: u64 = 65_535;

/// Short, because each session holds a socket.
const SESSION_MS: u64 = 30_000;

/// Uses the first route. Without a route, datagrams are dropped.
pub(crate) fn proxy(
    port: &Port,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Any {
    let routed = |listener: &&Listener| !listener.l4_routes.is_empty();
    let listener = port.listeners.iter().find(routed);
    let route = listener.and_then(|listener| listener.l4_routes.first());
    let shares = route.map_or_else(Vec::new, |route| {
        weights::shares(&route.name, &route.backends, context, problems)
    });
    let place = LoggedPlace {
        protocol: "udp",
        port: port.port,
        listener: listener.map(|listener| listener.name.as_str()),
        route: route.map(|route| route.name.as_str()),
        backend: match shares.as_slice() {
            [only] => Some(only.cluster),
            _ => None,
        },
    };
    pack_any(UdpProxyConfig {
        stat_prefix: format!("udp-{}", port.port),
        route_specifier: Some(to_shares(&shares)),
        idle_timeout: wrappers::milliseconds(
            context
                .edge
                .udp_session_timeout_ms
                .unwrap_or(SESSION_MS)
                .max(1),
        ),
        upstream_socket_config: Some(socket()),
        access_log: access_log::of_sessions(place, context),
        ..Default::default()
    })
}

pub(crate) fn socket() -> UdpSocketConfig {
    UdpSocketConfig {
        max_rx_datagram_size: wrappers::uint64(LONGEST_DATAGRAM),
        ..Default::default()
    }
}

/// Envoy's threat model does not cover the UDP matcher, so use it only for several shares. The
/// alternative is deprecated, but covered.
fn to_shares(shares: &[Share<'_>]) -> RouteSpecifier {
    #[expect(deprecated, reason = "Envoy's threat model covers only this form")]
    let cluster = RouteSpecifier::Cluster;
    match shares {
        [] => cluster(REFUSED_CLUSTER.to_owned()),
        [only] => cluster(only.cluster.to_owned()),
        [others @ .., last] => RouteSpecifier::Matcher(matcher(others, last)),
    }
}

/// The first backend gets the highest hashes.
fn matcher(others: &[Share<'_>], last: &Share<'_>) -> Matcher {
    let modulo = last.weight + others.iter().map(|share| share.weight).sum::<u32>();
    let mut threshold = modulo;
    let matchers = others.iter().map(|share| {
        threshold -= share.weight;
        FieldMatcher {
            predicate: Some(hash_is_at_least(threshold, modulo)),
            on_match: Some(to(share.cluster)),
        }
    });
    Matcher {
        matcher_type: Some(MatcherType::MatcherList(MatcherList {
            matchers: matchers.collect(),
        })),
        on_no_match: Some(Box::new(to(last.cluster))),
    }
}

fn hash_is_at_least(threshold: u32, modulo: u32) -> Predicate {
    Predicate {
        match_type: Some(MatchType::SinglePredicate(SinglePredicate {
            input: Some(extension("source_port", SourcePortInput::default())),
            matcher: Some(PredicateMatcher::CustomMatch(extension(
                "consistent_hashing",
                ConsistentHashing {
                    threshold,
                    modulo,
                    seed: 0,
                },
            ))),
        })),
    }
}

fn to(cluster: &str) -> OnMatch {
    let cluster = cluster.to_owned();
    OnMatch {
        on_match: Some(on_match::OnMatch::Action(extension(
            "route",
            Route { cluster },
        ))),
        ..Default::default()
    }
}

fn extension(name: &str, config: impl Name) -> TypedExtensionConfig {
    TypedExtensionConfig {
        name: name.to_owned(),
        typed_config: Some(pack_any(config)),
    }
}
