//! Maps the `appProtocol` of a Service port to the protocol that Envoy uses to connect to the port.
//!
//! Kubernetes reserves unprefixed names for IANA service names and defines some prefixed names,
//! such as `kubernetes.io/h2c`. Users also set names of neither kind. An unknown name is rejected,
//! because a wrong guess could send plaintext to a backend that expects another protocol.

use sesame_proto::schema::AppProtocol;

/// Returns the protocol for HTTP requests to a port with this `appProtocol`. Returns `None` if the
/// name is unknown, or if the name requires TLS and no policy configures TLS.
pub(crate) fn http_protocol(app_protocol: Option<&str>, tls: bool) -> Option<AppProtocol> {
    match app_protocol {
        None | Some("") => Some(AppProtocol::Http1),
        // IANA names are case-insensitive. `tcp` names only the transport, so HTTP/1.1 is assumed.
        Some(name) if name.eq_ignore_ascii_case("http") || name.eq_ignore_ascii_case("tcp") => {
            Some(AppProtocol::Http1)
        }
        // `h2c`, `h2` and `http2` are common but not registered. Matching is case-sensitive,
        // because one cloud provider uses upper-case `HTTP2` for HTTP/2 over TLS.
        Some("kubernetes.io/h2c" | "grpc" | "h2c" | "h2" | "http2") => Some(AppProtocol::Http2),
        Some("kubernetes.io/ws") => Some(AppProtocol::Websocket),
        // Never send plaintext to a port that requires HTTPS.
        Some(name) if is_https(name) && tls => Some(AppProtocol::Http1),
        Some("kubernetes.io/wss") if tls => Some(AppProtocol::Websocket),
        Some(_) => None,
    }
}

pub(crate) fn is_https(app_protocol: &str) -> bool {
    app_protocol.eq_ignore_ascii_case("https")
}
