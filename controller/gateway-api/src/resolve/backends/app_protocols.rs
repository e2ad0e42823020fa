//! The `appProtocol` of a Service port, and the protocol used with it.
//!
//! Kubernetes reserves the field for IANA names and its own (`kubernetes.io/h2c`); people write
//! others nevertheless. An unknown name is refused, because a guess could send plain text to a
//! backend that expects something else.

use sesame_proto::schema::AppProtocol;

/// Returns the protocol of a port for a plain HTTP route, or `None` if the name is unknown or needs
/// TLS that no policy configures.
pub(crate) fn http_protocol(app_protocol: Option<&str>, tls: bool) -> Option<AppProtocol> {
    match app_protocol {
        None | Some("") => Some(AppProtocol::Http1),
        // IANA names are case-insensitive. `tcp` says no more than the port itself.
        Some(name) if name.eq_ignore_ascii_case("http") || name.eq_ignore_ascii_case("tcp") => {
            Some(AppProtocol::Http1)
        }
        // The last three are not registered but widely used. In upper case, `HTTP2` is one cloud's
        // name for HTTP/2 over TLS.
        Some("kubernetes.io/h2c" | "grpc" | "h2c" | "h2" | "http2") => Some(AppProtocol::Http2),
        Some("kubernetes.io/ws") => Some(AppProtocol::Websocket),
        // HTTPS is never spoken in plain text.
        Some(name) if is_https(name) && tls => Some(AppProtocol::Http1),
        Some("kubernetes.io/wss") if tls => Some(AppProtocol::Websocket),
        Some(_) => None,
    }
}

pub(crate) fn is_https(app_protocol: &str) -> bool {
    app_protocol.eq_ignore_ascii_case("https")
}
