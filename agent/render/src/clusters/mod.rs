//! One cluster for each backend.
//!
//! If a backend cannot be reached as the snapshot demands (because a trust bundle or the names to
//! verify are missing), it has no cluster at all. Its share of requests is refused, never sent
//! unverified.

mod balance;
mod breakers;
pub(crate) mod endpoints;
mod health;
pub(crate) mod shares;

use std::collections::HashMap;

use envoy_types::pb::envoy::config::cluster::v3::{Cluster, UpstreamConnectionOptions, cluster};
use envoy_types::pb::envoy::config::core::v3::{
    Http1ProtocolOptions, Http2ProtocolOptions, HttpProtocolOptions as CommonOptions, TcpKeepalive,
};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::{
    HttpProtocolOptions,
    http_protocol_options::{
        ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
    },
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::Message as _;
use sesame_proto::schema::{AppProtocol, Backend, MOST_BACKEND_MS};

use self::endpoints::Sets;
use crate::context::{EndpointRules, RenderContext};
use crate::http::sessions;
use crate::limits::CONNECTION_BUFFER;
use crate::rendered::{RenderProblems, Resource, by_name};
use crate::{config_sources, tls, wrappers};

/// Connect timeout of an endpoint in milliseconds.
const CONNECT_TIMEOUT_MS: u64 = 5_000;

/// Maximum number of response headers, and their KiB; above these, the answer is 502. Envoy's
/// defaults of 100 and 60 reject responses that clients accept without a proxy.
const MOST_RESPONSE_HEADERS: u32 = 1_000;
const MOST_RESPONSE_HEADERS_KIB: u32 = 256;

/// Returns the clusters of backends, by name.
pub(crate) fn render(
    backends: &[&Backend],
    sets: &Sets<'_>,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Vec<Resource> {
    let mut clusters = Vec::with_capacity(backends.len());
    for backend in backends {
        let of_backend = of_backend(backend, sets, context);
        let refused = "its share of requests is refused";
        let of_backend = problems.value(&backend.name, of_backend, refused);
        clusters.extend(of_backend.into_iter().flatten());
    }
    by_name(clusters, problems)
}

/// Returns the clusters of one backend, or an error if it cannot have one.
pub(crate) fn of_backend(
    backend: &Backend,
    sets: &Sets<'_>,
    context: &RenderContext<'_>,
) -> Result<Vec<Resource>, String> {
    Ok(all_of(backend, cluster(backend, sets, context)?))
}

/// Returns the names of the clusters of a backend.
pub(crate) fn names_of(backend: &Backend) -> impl Iterator<Item = String> {
    let cluster = Cluster {
        name: backend.name.clone(),
        ..Default::default()
    };
    all_of(backend, cluster).into_iter().map(|it| it.name)
}

/// Returns the cluster of a backend, after its additional clusters for sessions.
fn all_of(backend: &Backend, cluster: Cluster) -> Vec<Resource> {
    let mut clusters = Vec::with_capacity(1);
    if !backend.session_key.is_empty() {
        clusters.extend(sessions::clusters(&cluster).map(encode));
    }
    clusters.push(encode(cluster));
    clusters
}

/// Returns the endpoints of a backend, to be inlined in its cluster.
fn inline(backend: &Backend, sets: &Sets<'_>, rules: &EndpointRules) -> ClusterLoadAssignment {
    let set = sets.get(backend.endpoints.as_str()).copied();
    let protocol = backend.protocol();
    endpoints::assignment(&backend.name, set, protocol, &backend.session_key, rules)
}

/// Returns the previously rendered clusters of a backend with new endpoints; empty if its endpoints
/// are in a file. Returns `None` if `known` cannot be decoded.
pub(crate) fn with_endpoints(
    known: &Resource,
    backend: &Backend,
    sets: &Sets<'_>,
    rules: &EndpointRules,
) -> Option<Vec<Resource>> {
    let mut cluster = Cluster::decode(&known.bytes[..]).ok()?;
    if cluster.load_assignment.is_none() {
        return Some(Vec::new());
    }
    cluster.load_assignment = Some(inline(backend, sets, rules));
    Some(all_of(backend, cluster))
}

fn encode(cluster: Cluster) -> Resource {
    Resource {
        bytes: cluster.encode_to_vec().into(),
        name: cluster.name,
    }
}

fn cluster(
    backend: &Backend,
    sets: &Sets<'_>,
    context: &RenderContext<'_>,
) -> Result<Cluster, String> {
    let Backend {
        name,
        endpoints,
        protocol: _,
        tls: backend_tls,
        session_key: _,
        idle_timeout_ms,
        load_balancer,
        health_check,
        outlier,
        breaker,
        connect_timeout_ms,
    } = backend;
    let protocol = backend.protocol();
    if name.is_empty() {
        return Err("a backend has no name".to_owned());
    }
    let transport_socket = backend_tls
        .as_ref()
        .map(|tls| tls::upstream(tls, protocol, context))
        .transpose()?;
    let mut cluster = Cluster {
        name: name.clone(),
        connect_timeout: wrappers::milliseconds(match connect_timeout_ms {
            0 => CONNECT_TIMEOUT_MS,
            timeout => (*timeout).min(MOST_BACKEND_MS),
        }),
        per_connection_buffer_limit_bytes: wrappers::uint32(CONNECTION_BUFFER),
        circuit_breakers: Some(breakers::render(
            &context.options.limits,
            breaker.as_deref(),
        )),
        typed_extension_protocol_options: http_options(protocol, *idle_timeout_ms),
        transport_socket,
        outlier_detection: outlier.as_deref().map(health::ejection),
        ..Default::default()
    };
    if let Some(balancer) = load_balancer {
        balance::into(&mut cluster, balancer);
    }
    if let Some(check) = health_check {
        health::into(&mut cluster, check, protocol)?;
    }
    if protocol != AppProtocol::UdpDatagrams {
        cluster.upstream_connection_options = Some(keepalive());
    }
    // The resolver adds every set, but a foreign snapshot may name a missing one. That is a backend
    // without endpoints (503), not an error.
    if context.subscriptions.endpoints.contains(name.as_str()) && !endpoints.is_empty() {
        cluster.cluster_discovery_type = Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Eds.into(),
        ));
        cluster.eds_cluster_config = Some(cluster::EdsClusterConfig {
            eds_config: Some(config_sources::file(&context.options.layout.eds(endpoints))),
            service_name: endpoints.clone(),
        });
    } else {
        // Without a discovery type, the cluster is STATIC.
        cluster.load_assignment = Some(inline(backend, sets, &context.options.endpoints));
    }
    Ok(cluster)
}

/// Returns the options of HTTP connections to a backend; empty for other protocols.
fn http_options(protocol: AppProtocol, idle_timeout_ms: Option<u64>) -> HashMap<String, Any> {
    let config = match protocol {
        AppProtocol::Http1 | AppProtocol::Websocket => {
            ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default())
        }
        AppProtocol::Http2 => ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default()),
        AppProtocol::TcpBytes | AppProtocol::UdpDatagrams => return HashMap::new(),
    };
    let options = HttpProtocolOptions {
        common_http_protocol_options: Some(CommonOptions {
            idle_timeout: idle_timeout_ms.and_then(wrappers::milliseconds),
            max_headers_count: wrappers::uint32(MOST_RESPONSE_HEADERS),
            max_response_headers_kb: wrappers::uint32(MOST_RESPONSE_HEADERS_KIB),
            ..Default::default()
        }),
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(
            ExplicitHttpConfig {
                protocol_config: Some(config),
            },
        )),
        ..Default::default()
    };
    let name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    // A single entry, because prost writes several in random order.
    HashMap::from([(name.to_owned(), pack_any(options))])
}

/// Detects within about 90 s that an endpoint vanished silently, for instance because its node lost
/// power.
fn keepalive() -> UpstreamConnectionOptions {
    UpstreamConnectionOptions {
        tcp_keepalive: Some(TcpKeepalive {
            keepalive_probes: wrappers::uint32(3),
            keepalive_time: wrappers::uint32(60),
            keepalive_interval: wrappers::uint32(10),
        }),
        ..Default::default()
    }
}
