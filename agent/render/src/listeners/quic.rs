//! HTTP/3 listeners, which serve the HTTPS listeners of the TCP port with the same number.
//!
//! They use the same route tables and connection managers. A listener that HTTP/3 cannot serve as
//! safely as TCP has no chain. Each listener has its own route table, so if its server names match a
//! chain with a wider hostname, requests for them get 421, as on a reused connection. Without a
//! matching chain, the handshake fails.

use std::{iter, slice};

use envoy_types::pb::envoy::config::core::v3::{QuicProtocolOptions, UdpSocketConfig};
use envoy_types::pb::envoy::config::listener::v3::{
    Filter, FilterChain, FilterChainMatch, Listener as EnvoyListener,
    QuicProtocolOptions as QuicListenerOptions, UdpListenerConfig, filter,
};
use envoy_types::pb::envoy::extensions::filters::network::connection_limit::v3::ConnectionLimit;
use envoy_types::util::pack_any;
use sesame_proto::schema::{Listener, Port, Protocol, TlsTermination, Transport};

use super::filter_chains::{self, HANDSHAKE_MS};
use crate::access_log::LoggedPlace;
use crate::connection_ids;
use crate::context::RenderContext;
use crate::http::client_addresses::Peers;
use crate::http::http3::HttpConnections;
use crate::http::{hcm, protocol_options};
use crate::limits::FEW;
use crate::{tls, wrappers};

/// Envoy always lets the kernel combine datagrams, up to 64 KiB, but without `prefer_gro` drops those
/// that exceed this size, and uploads stall. With it, its buffer has 16 times this size.
const DATAGRAM: u64 = 4096;

/// Each listener may use this part of the host's client connections. Envoy's own limits, which
/// follow the number of listeners, do not count QUIC, and a share that changes would close
/// connections.
const PART: u32 = 4;

/// Returns true if the HTTPS listeners of a TCP port are served over HTTP/3 too.
pub(super) fn serves(tcp: &Port, ports: &[Port]) -> bool {
    let is_same = |it: &&Port| it.transport() == Transport::Udp && it.port == tcp.port;
    let mut same = ports.iter().filter(is_same);
    // A listener for datagrams has precedence.
    same.clone().all(|it| it.http3) && same.next().is_some()
}

/// Returns `None` if no listener can be served over HTTP/3.
pub(super) fn render(
    port: &Port,
    ports: &[Port],
    context: &RenderContext<'_>,
) -> Option<EnvoyListener> {
    let is_same = |it: &&Port| it.transport() == Transport::Tcp && it.port == port.port;
    let tcp = ports.iter().find(is_same).filter(|it| serves(it, ports))?;
    let mut filter_chains = Vec::new();
    let peers = Peers::new(tcp, context).unwrap_or_else(|_| Peers::none());
    for listener in &tcp.listeners {
        // The same errors are reported for the listener's chain over TCP.
        if let Some(tls) = allowed(listener)
            && let Ok(chain) = chain(listener, tls, (tcp.port, &peers), context)
        {
            filter_chains.push(chain);
        }
    }
    (!filter_chains.is_empty()).then(|| EnvoyListener {
        filter_chains,
        udp_listener_config: Some(UdpListenerConfig {
            quic_options: Some(options(context)),
            downstream_socket_config: Some(UdpSocketConfig {
                max_rx_datagram_size: wrappers::uint64(DATAGRAM),
                prefer_gro: wrappers::boolean(true),
            }),
            ..Default::default()
        }),
        per_connection_buffer_limit_bytes: wrappers::uint32(protocol_options::connection_buffer(
            context.edge,
        )),
        ..Default::default()
    })
}

/// Returns the TLS settings of a listener that may be served over HTTP/3.
pub(super) fn allowed(listener: &Listener) -> Option<&TlsTermination> {
    let tls = listener.tls.as_ref()?;
    (listener.protocol() == Protocol::Https && tls.allows_http3()).then_some(tls)
}

fn chain(
    listener: &Listener,
    tls: &TlsTermination,
    (port, peers): (u32, &Peers<'_>),
    context: &RenderContext<'_>,
) -> Result<FilterChain, String> {
    let table = filter_chains::usable(&listener.route_table, context)?;
    let place = LoggedPlace::new("https", port, Some(listener.name.as_str()));
    let manager = hcm::render(
        place,
        table,
        Some(tls),
        HttpConnections::Quic(port),
        // Known proxies connect over TCP.
        peers.others,
        context,
    );
    let server_names = filter_chains::server_names(slice::from_ref(&listener.hostname))?;
    let is_narrow = !server_names.iter().any(String::is_empty);
    let chain = filter_chains::chain(&listener.name, manager);
    Ok(FilterChain {
        filters: iter::once(limit(context)).chain(chain.filters).collect(),
        transport_socket: Some(tls::over_quic(tls, context)?),
        filter_chain_match: is_narrow.then(|| FilterChainMatch {
            server_names,
            ..Default::default()
        }),
        ..chain
    })
}

fn limit(context: &RenderContext<'_>) -> Filter {
    let connections = context.options.limits.from_clients / PART;
    let limit = ConnectionLimit {
        stat_prefix: "http3".to_owned(),
        max_connections: wrappers::uint64(connections.max(FEW).into()),
        ..Default::default()
    };
    Filter {
        name: "envoy.filters.network.connection_limit".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(pack_any(limit))),
    }
}

/// Without limits, Envoy buffers up to 24 MiB per connection.
fn options(context: &RenderContext<'_>) -> QuicListenerOptions {
    let edge = context.edge;
    let handshake_ms = edge.tls_handshake_timeout_ms.unwrap_or(HANDSHAKE_MS);
    QuicListenerOptions {
        quic_protocol_options: Some(QuicProtocolOptions {
            max_concurrent_streams: wrappers::uint32(protocol_options::max_streams(edge)),
            initial_stream_window_size: wrappers::uint32(protocol_options::STREAM_WINDOW),
            initial_connection_window_size: wrappers::uint32(protocol_options::CONNECTION_WINDOW),
            connection_keepalive: protocol_options::quic_keepalive(edge),
            ..Default::default()
        }),
        idle_timeout: wrappers::milliseconds(protocol_options::connection_idle_ms(edge)),
        connection_id_generator_config: Some(connection_ids::generator()),
        // Envoy's minimum is 5 s. It has no way to wait forever.
        crypto_handshake_timeout: Some(handshake_ms)
            .filter(|time| *time > 0)
            .and_then(wrappers::milliseconds),
        ..Default::default()
    }
}
