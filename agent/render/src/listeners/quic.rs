//! HTTP/3 listeners, which serve the HTTPS listeners of the TCP port with the same number.
//!
//! They use the same route tables and connection managers. A listener that HTTP/3 cannot serve as
//! safely as TCP has no chain. Each listener has its own route table, so if its server names match a
//! chain with a wider hostname, requests for them get 421, as on a reused connection. Without a
//! matching chain, the handshake fails.

use std::slice;

use envoy_types::pb::envoy::config::core::v3::{QuicProtocolOptions, UdpSocketConfig};
use envoy_types::pb::envoy::config::listener::v3::{
    FilterChain, FilterChainMatch, Listener as EnvoyListener,
    QuicProtocolOptions as QuicListenerOptions, UdpListenerConfig,
};
use sesame_proto::schema::{Listener, Port, Protocol, TlsTermination, Transport};

use super::filter_chains::{self, HANDSHAKE_MS};
use crate::access_log::LoggedPlace;
use crate::connection_ids;
use crate::context::RenderContext;
use crate::http::hcm;
use crate::http::http3::HttpConnections;
use crate::limits::CONNECTION_BUFFER;
use crate::{tls, wrappers};

/// Envoy always lets the kernel combine datagrams, up to 64 KiB, but without `prefer_gro` drops those
/// that exceed this size, and uploads stall. With it, its buffer has 16 times this size.
const DATAGRAM: u64 = 4096;

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
    for listener in &tcp.listeners {
        // The same errors are reported for the listener's chain over TCP.
        if let Some(tls) = allowed(listener)
            && let Ok(chain) = chain(listener, tls, tcp.port, context)
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
        per_connection_buffer_limit_bytes: wrappers::uint32(CONNECTION_BUFFER),
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
    port: u32,
    context: &RenderContext<'_>,
) -> Result<FilterChain, String> {
    let table = filter_chains::usable(&listener.route_table, context)?;
    let place = LoggedPlace::new("https", port, Some(listener.name.as_str()));
    let manager = hcm::render(
        place,
        table,
        Some(tls),
        HttpConnections::Quic(port),
        context,
    );
    let server_names = filter_chains::server_names(slice::from_ref(&listener.hostname))?;
    let is_narrow = !server_names.iter().any(String::is_empty);
    Ok(FilterChain {
        transport_socket: Some(tls::over_quic(tls, context)?),
        filter_chain_match: is_narrow.then(|| FilterChainMatch {
            server_names,
            ..Default::default()
        }),
        ..filter_chains::chain(&listener.name, manager)
    })
}

/// Without limits, Envoy buffers up to 24 MiB per connection.
fn options(context: &RenderContext<'_>) -> QuicListenerOptions {
    let edge = context.edge;
    let handshake_ms = edge.tls_handshake_timeout_ms.unwrap_or(HANDSHAKE_MS);
    QuicListenerOptions {
        quic_protocol_options: Some(QuicProtocolOptions {
            max_concurrent_streams: wrappers::uint32(hcm::MAX_STREAMS),
            initial_stream_window_size: wrappers::uint32(hcm::STREAM_WINDOW),
            initial_connection_window_size: wrappers::uint32(hcm::CONNECTION_WINDOW),
            ..Default::default()
        }),
        idle_timeout: wrappers::milliseconds(hcm::connection_idle_ms(edge)),
        connection_id_generator_config: Some(connection_ids::generator()),
        // Envoy's minimum is 5 s. It has no way to wait forever.
        crypto_handshake_timeout: Some(handshake_ms)
            .filter(|time| *time > 0)
            .and_then(wrappers::milliseconds),
        ..Default::default()
    }
}
