//! What differs between connections over TCP and QUIC in the HTTP connection manager.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation, header_mutation::Action,
};
use envoy_types::pb::envoy::config::core::v3::{
    Http3ProtocolOptions, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as HeaderMutationFilter, Mutations,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_connection_manager::CodecType, http_filter,
};
use envoy_types::util::pack_any;

use crate::wrappers;

/// Short, because clients keep trying HTTP/3 for this long after it is disabled.
const ANNOUNCED_SECONDS: u32 = 3600;

/// The connections that a manager serves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpConnections {
    Tcp,
    /// Also announces HTTP/3 on this port, as seen by clients.
    TcpBesideQuic(u32),
    Quic(u32),
}

impl HttpConnections {
    pub(super) fn codec(self) -> CodecType {
        match self {
            Self::Tcp | Self::TcpBesideQuic(_) => CodecType::Auto,
            Self::Quic(_) => CodecType::Http3,
        }
    }
}

/// The listener limits streams and buffers.
pub(super) fn options(connections: HttpConnections) -> Option<Http3ProtocolOptions> {
    let HttpConnections::Quic(_) = connections else {
        return None;
    };
    Some(Http3ProtocolOptions {
        // As for HTTP/2.
        override_stream_error_on_invalid_http_message: wrappers::boolean(true),
        ..Default::default()
    })
}

/// Announces HTTP/3 (RFC 7838), unless the backend has set `alt-svc` itself. Present only if the
/// port is served over HTTP/3, so only enabling that changes the listener.
pub(super) fn announcing(connections: HttpConnections) -> Option<HttpFilter> {
    let port = match connections {
        HttpConnections::Tcp => return None,
        HttpConnections::TcpBesideQuic(port) | HttpConnections::Quic(port) => port,
    };
    let header = wrappers::header(
        "alt-svc",
        format!("h3=\":{port}\"; ma={ANNOUNCED_SECONDS}"),
        HeaderAppendAction::AddIfAbsent,
    );
    let mutation = HeaderMutation {
        action: Some(Action::Append(header)),
    };
    Some(HttpFilter {
        name: "announce_http3".to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(pack_any(
            HeaderMutationFilter {
                mutations: Some(Mutations {
                    response_mutations: vec![mutation],
                    ..Default::default()
                }),
                ..Default::default()
            },
        ))),
        ..Default::default()
    })
}
