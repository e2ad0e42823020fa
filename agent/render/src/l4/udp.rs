//! Routes for UDP datagrams.
//!
//! Envoy's UDP proxy does not support weights, so a hash of the client's port selects the backend
//! of a session. A client that always uses the same port always gets the same backend.

use envoy_types::pb::envoy::config::core::v3::{CidrRange, UdpSocketConfig};
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::{
    Route, UdpProxyConfig, udp_proxy_config::RouteSpecifier,
};
use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::{
    SourceIpInput, SourcePortInput,
};
use envoy_types::pb::envoy::extensions::matching::input_matchers::consistent_hashing::v3::ConsistentHashing;
use envoy_types::pb::envoy::extensions::matching::input_matchers::ip::v3::Ip;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::core::v3::TypedExtensionConfig;
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher,
    matcher::{
        MatcherList, MatcherType, OnMatch,
        matcher_list::{
            FieldMatcher, Predicate,
            predicate::{
                MatchType, PredicateList, SinglePredicate,
                single_predicate::Matcher as PredicateMatcher,
            },
        },
        on_match,
    },
};
use envoy_types::util::pack_any;
use prost::Name;
use sesame_proto::schema::{AddressFilter, AddressRange, Listener, Port};

use super::addresses::range;
use super::weights::{self, REFUSED_CLUSTER, Share};
use crate::access_log::{self, LoggedPlace};
use crate::context::RenderContext;
use crate::rendered::RenderProblems;
use crate::wrappers;

/// Maximum size of a UDP datagram over IPv4 or IPv6. By default, Envoy drops datagrams above 1,500
/// bytes.
const LONGEST_DATAGRAM: u64 = 65_535;

/// Default idle timeout of a session, short because each session holds a socket.
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
    let filters = route.map_or(&[][..], |route| &route.address_filters);
    let specifier = route_specifier(&shares, filters);
    let name = route.map_or("", |route| &route.name);
    let specifier = problems.value(name, specifier, "its datagrams are dropped");
    let specifier = specifier.unwrap_or_else(|| to_shares(&[]));
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
        route_specifier: Some(specifier),
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

/// Envoy's threat model does not cover the UDP matcher, so use it only for several shares. For one
/// share, use the deprecated field, which the threat model covers.
fn to_shares(shares: &[Share<'_>]) -> RouteSpecifier {
    #[expect(deprecated, reason = "Envoy's threat model covers only this form")]
    let cluster = RouteSpecifier::Cluster;
    match shares {
        [] => cluster(REFUSED_CLUSTER.to_owned()),
        [only] => cluster(only.cluster.to_owned()),
        [others @ .., last] => RouteSpecifier::Matcher(matcher(others, last)),
    }
}

/// Drops datagrams from addresses that a filter denies, because they match no route. Sessions are
/// keyed by the client's address, so Envoy checks each address before its first datagram.
fn route_specifier(
    shares: &[Share<'_>],
    filters: &[AddressFilter],
) -> Result<RouteSpecifier, String> {
    let predicates = filters.iter().map(allowed_by);
    let predicates: Vec<Vec<Predicate>> = predicates.collect::<Result<_, _>>()?;
    let (predicate, on_match) = match (and(predicates.concat()), shares) {
        (Some(predicate), [others @ .., last]) => (predicate, to_any(others, last)),
        (None, _) | (_, []) => return Ok(to_shares(shares)),
    };
    Ok(RouteSpecifier::Matcher(Matcher {
        matcher_type: Some(MatcherType::MatcherList(MatcherList {
            matchers: vec![FieldMatcher {
                predicate: Some(predicate),
                on_match: Some(on_match),
            }],
        })),
        on_no_match: None,
    }))
}

fn to_any(others: &[Share<'_>], last: &Share<'_>) -> OnMatch {
    if others.is_empty() {
        return to(last.cluster);
    }
    OnMatch {
        on_match: Some(on_match::OnMatch::Matcher(Box::new(matcher(others, last)))),
        ..Default::default()
    }
}

fn allowed_by(filter: &AddressFilter) -> Result<Vec<Predicate>, String> {
    let AddressFilter { name, allow, deny } = filter;
    let is_from = |list: &[AddressRange]| {
        let ranges = list.iter().map(|AddressRange { network, peer: _ }| {
            range(network).map_err(|why| format!("`{name}`: {why}"))
        });
        let ranges: Vec<CidrRange> = ranges.collect::<Result<_, _>>()?;
        Ok::<_, String>((!ranges.is_empty()).then(|| is_from(ranges)))
    };
    let (is_allowed, is_denied) = (is_from(allow)?, is_from(deny)?);
    if is_allowed.is_none() && is_denied.is_none() {
        return Err(format!("`{name}`: an address filter has no networks"));
    }
    let is_not_denied = is_denied.map(|denied| Predicate {
        match_type: Some(MatchType::NotMatcher(Box::new(denied))),
    });
    Ok(is_allowed.into_iter().chain(is_not_denied).collect())
}

fn is_from(cidr_ranges: Vec<CidrRange>) -> Predicate {
    Predicate {
        match_type: Some(MatchType::SinglePredicate(SinglePredicate {
            input: Some(extension("source_ip", SourceIpInput::default())),
            matcher: Some(PredicateMatcher::CustomMatch(extension(
                "ip",
                Ip {
                    cidr_ranges,
                    stat_prefix: "udp".to_owned(),
                },
            ))),
        })),
    }
}

/// Envoy requires at least two predicates in a list.
fn and(mut predicates: Vec<Predicate>) -> Option<Predicate> {
    if predicates.len() < 2 {
        return predicates.pop();
    }
    Some(Predicate {
        match_type: Some(MatchType::AndMatcher(PredicateList {
            predicate: predicates,
        })),
    })
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
