//! Options of the protocols between clients and Envoy, with defaults for untrusted clients.

use envoy_types::pb::envoy::config::core::v3::{
    Http1ProtocolOptions, Http2ProtocolOptions, HttpProtocolOptions, KeepaliveSettings,
    QuicKeepAliveSettings,
    http_protocol_options::HeadersWithUnderscoresAction,
    http1_protocol_options::{HeaderKeyFormat, header_key_format::HeaderFormat},
};
use envoy_types::pb::envoy::extensions::http::header_formatters::preserve_case::v3::PreserveCaseFormatterConfig;
use envoy_types::util::pack_any;
use sesame_proto::schema::edge::Underscores;
use sesame_proto::schema::{Edge, Snapshot};

use crate::limits::CONNECTION_BUFFER;
use crate::wrappers;

pub(super) fn common(edge: Edge) -> HttpProtocolOptions {
    // Backends that turn headers into variables cannot distinguish `a_b` from `a-b`, so `a_b` could
    // bypass a check of `a-b`.
    let underscores = match edge.header_underscores() {
        Underscores::RejectRequest => HeadersWithUnderscoresAction::RejectRequest,
        Underscores::DropHeader => HeadersWithUnderscoresAction::DropHeader,
        Underscores::Allow => HeadersWithUnderscoresAction::Allow,
    };
    HttpProtocolOptions {
        idle_timeout: wrappers::milliseconds(connection_idle_ms(edge)),
        max_headers_count: wrappers::uint32(edge.max_request_headers.unwrap_or(MAX_HEADERS).max(1)),
        headers_with_underscores_action: underscores.into(),
        max_connection_duration: set(edge.max_connection_age_ms).and_then(wrappers::milliseconds),
        max_requests_per_connection: Some(edge.max_connection_requests)
            .filter(|it| *it > 0)
            .and_then(wrappers::uint32),
        ..Default::default()
    }
}

pub(super) fn http1(edge: Edge) -> Http1ProtocolOptions {
    Http1ProtocolOptions {
        // Some load balancers' health checks and some old proxies use HTTP/1.0.
        accept_http_10: !edge.reject_http10,
        // Unsupported upgrades such as `TLS/1.2` must be ignored (RFC 9110, 7.8), but Envoy
        // responds with 403 by default.
        ignore_http_11_upgrade: if edge.reject_other_upgrades {
            Vec::new()
        } else {
            vec![wrappers::matching_none_of(&upgrades(edge))]
        },
        header_key_format: header_case(edge),
        ..Default::default()
    }
}

pub(super) fn upgrades(edge: Edge) -> Vec<&'static str> {
    let mut upgrades = vec!["websocket"];
    if edge.upgrades_to_spdy {
        upgrades.push("spdy/3.1");
    }
    if edge.upgrades_to_tcp {
        upgrades.push("tcp");
    }
    upgrades
}

/// Envoy writes header names in lower case by default.
pub(crate) fn header_case(edge: Edge) -> Option<HeaderKeyFormat> {
    let formatter = wrappers::extension(
        "envoy.http.stateful_header_formatters.preserve_case",
        pack_any(PreserveCaseFormatterConfig::default()),
    );
    edge.preserve_header_case.then_some(HeaderKeyFormat {
        header_format: Some(HeaderFormat::StatefulFormatter(formatter)),
    })
}

pub(super) fn http2(edge: Edge) -> Http2ProtocolOptions {
    Http2ProtocolOptions {
        max_concurrent_streams: wrappers::uint32(max_streams(edge)),
        initial_stream_window_size: wrappers::uint32(STREAM_WINDOW),
        initial_connection_window_size: wrappers::uint32(CONNECTION_WINDOW),
        // An invalid request closes only its stream, not the connection.
        override_stream_error_on_invalid_http_message: wrappers::boolean(true),
        connection_keepalive: set(edge.keepalive_interval_ms).map(|interval| KeepaliveSettings {
            interval: wrappers::milliseconds(interval),
            timeout: wrappers::milliseconds(PING_MS),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(crate) fn connection_idle_ms(edge: Edge) -> u64 {
    edge.connection_idle_timeout_ms
        .unwrap_or(CONNECTION_IDLE_MS)
}

/// A route with a longer request timeout overrides this timeout.
pub(crate) fn stream_idle_ms(edge: Edge) -> u64 {
    edge.stream_idle_timeout_ms.unwrap_or(STREAM_IDLE_MS)
}

/// A route does not know its ports. Returns 0 if no port has a timeout.
pub(crate) fn shortest_stream_idle_ms(snapshot: &Snapshot) -> u64 {
    let ports = snapshot.ports.iter().filter_map(|port| port.edge);
    let edges = ports.chain([snapshot.edge.unwrap_or_default()]);
    let timeouts = edges.map(stream_idle_ms).filter(|it| *it > 0);
    timeouts.min().unwrap_or_default()
}

/// A client that does not answer is closed after the idle timeout.
pub(crate) fn quic_keepalive(edge: Edge) -> Option<QuicKeepAliveSettings> {
    set(edge.keepalive_interval_ms).map(|interval| QuicKeepAliveSettings {
        max_interval: wrappers::milliseconds(interval),
        initial_interval: wrappers::milliseconds(interval),
    })
}

pub(crate) fn max_streams(edge: Edge) -> u32 {
    edge.max_concurrent_streams
        .unwrap_or(MAX_STREAMS)
        .clamp(1, 10_000)
}

/// Returns the buffer size of each connection, in bytes.
pub(crate) fn connection_buffer(edge: Edge) -> u32 {
    let kib = edge.connection_buffer_kib.map(|kib| kib.clamp(4, 1024));
    kib.map_or(CONNECTION_BUFFER, |kib| kib * 1024)
}

fn set(milliseconds: u64) -> Option<u64> {
    Some(milliseconds).filter(|it| *it > 0)
}

/// The table in `docs/hardening.md` lists these and all other defaults.
const MAX_STREAMS: u32 = 100;
pub(crate) const STREAM_WINDOW: u32 = 64 * 1024;
pub(crate) const CONNECTION_WINDOW: u32 = 1024 * 1024;
const STREAM_IDLE_MS: u64 = 300_000;
const CONNECTION_IDLE_MS: u64 = 300_000;
const MAX_HEADERS: u32 = 100;
/// Time for a client to answer a ping.
const PING_MS: u64 = 20_000;
