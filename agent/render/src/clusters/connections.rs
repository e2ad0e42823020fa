//! Connections to endpoints: timeouts, keep-alive, HTTP options and the PROXY protocol.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::cluster::v3::{Cluster, UpstreamConnectionOptions};
use envoy_types::pb::envoy::config::core::v3::{
    Http1ProtocolOptions, Http2ProtocolOptions, HttpProtocolOptions as CommonOptions,
    ProxyProtocolConfig, TcpKeepalive, TransportSocket, proxy_protocol_config::Version,
    transport_socket::ConfigType,
};
use envoy_types::pb::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::{
    HttpProtocolOptions,
    http_protocol_options::{
        ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
    },
};
use envoy_types::util::pack_any;
use sesame_proto::schema::backend_connections::ProxyProtocol;
use sesame_proto::schema::{AppProtocol, BackendConnections, Edge, Keepalive, MAX_BACKEND_MS};

use crate::http::protocol_options::header_case;
use crate::wrappers;

const CONNECT_TIMEOUT_MS: u64 = 5_000;

/// Maximum number and total size of a response's headers. A response above either limit becomes a
/// 502. Envoy's defaults of 100 and 60 reject responses that clients accept without a proxy.
const MAX_RESPONSE_HEADERS: u32 = 1_000;
const MAX_RESPONSE_HEADERS_KIB: u32 = 256;

/// Detects silently vanished endpoints, for example after a power loss, within about 90 s.
const KEEPALIVE: Keepalive = Keepalive {
    idle_seconds: 60,
    interval_seconds: 10,
    probes: 3,
};

/// The transport socket must already be set. An `idle_timeout_ms` of 0 disables the timeout.
pub(super) fn into(
    cluster: &mut Cluster,
    connections: &BackendConnections,
    idle_timeout_ms: Option<u64>,
    protocol: AppProtocol,
    edge: Edge,
) {
    let BackendConnections {
        connect_timeout_ms,
        max_duration_ms,
        max_requests,
        keepalive,
        proxy_protocol: _,
    } = connections;
    cluster.connect_timeout = wrappers::milliseconds(match connect_timeout_ms {
        0 => CONNECT_TIMEOUT_MS,
        timeout => (*timeout).min(MAX_BACKEND_MS),
    });
    let own = |value: u32| Some(value).filter(|it| *it > 0);
    let duration = Some(*max_duration_ms).filter(|it| *it > 0);
    let options = CommonOptions {
        idle_timeout: idle_timeout_ms.and_then(wrappers::milliseconds),
        max_connection_duration: duration
            .and_then(|it| wrappers::milliseconds(it.min(MAX_BACKEND_MS))),
        max_requests_per_connection: own(*max_requests).and_then(wrappers::uint32),
        max_headers_count: wrappers::uint32(
            edge.max_response_headers
                .unwrap_or(MAX_RESPONSE_HEADERS)
                .clamp(1, 10_000),
        ),
        max_response_headers_kb: wrappers::uint32(
            edge.max_response_headers_kib
                .unwrap_or(MAX_RESPONSE_HEADERS_KIB)
                .clamp(1, 8192),
        ),
        ..Default::default()
    };
    set_http(cluster, options, protocol, edge);
    if protocol == AppProtocol::UdpDatagrams {
        return;
    }
    cluster.upstream_connection_options = Some(UpstreamConnectionOptions {
        tcp_keepalive: Some(probes(keepalive.unwrap_or(KEEPALIVE))),
        ..Default::default()
    });
    let version = match connections.proxy_protocol() {
        ProxyProtocol::None => return,
        ProxyProtocol::V1 => Version::V1,
        ProxyProtocol::V2 => Version::V2,
    };
    let inner = cluster.transport_socket.take();
    cluster.transport_socket = Some(with_header(version, inner));
}

fn set_http(cluster: &mut Cluster, common: CommonOptions, protocol: AppProtocol, edge: Edge) {
    let config = match protocol {
        AppProtocol::Http1 | AppProtocol::Websocket => {
            ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions {
                header_key_format: header_case(edge),
                ..Default::default()
            })
        }
        AppProtocol::Http2 => ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default()),
        AppProtocol::TcpBytes | AppProtocol::UdpDatagrams => return,
    };
    let options = HttpProtocolOptions {
        common_http_protocol_options: Some(common),
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(
            ExplicitHttpConfig {
                protocol_config: Some(config),
            },
        )),
        ..Default::default()
    };
    let name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    // Use only one entry, because prost writes several in random order.
    cluster.typed_extension_protocol_options =
        HashMap::from([(name.to_owned(), pack_any(options))]);
}

fn probes(keepalive: Keepalive) -> TcpKeepalive {
    let Keepalive {
        idle_seconds,
        interval_seconds,
        probes,
    } = keepalive;
    let bounded = |value: u32| wrappers::uint32(value.clamp(1, Keepalive::MAX));
    TcpKeepalive {
        keepalive_probes: bounded(probes),
        keepalive_time: bounded(idle_seconds),
        keepalive_interval: bounded(interval_seconds),
    }
}

fn with_header(version: Version, inner: Option<TransportSocket>) -> TransportSocket {
    let plain = || TransportSocket {
        name: "envoy.transport_sockets.raw_buffer".to_owned(),
        config_type: Some(ConfigType::TypedConfig(pack_any(RawBuffer::default()))),
    };
    let transport = ProxyProtocolUpstreamTransport {
        config: Some(ProxyProtocolConfig {
            version: version.into(),
            ..Default::default()
        }),
        transport_socket: Some(inner.unwrap_or_else(plain)),
        ..Default::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.upstream_proxy_protocol".to_owned(),
        config_type: Some(ConfigType::TypedConfig(pack_any(transport))),
    }
}
