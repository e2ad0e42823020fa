//! Maps `appProtocol` to Envoy's upstream protocol.
//!
//! Unprefixed names are IANA service names, and Kubernetes defines some prefixed names. Other names
//! are rejected, because a wrong guess could send plaintext to a backend that expects another
//! protocol.

use sesame_proto::schema::AppProtocol;

/// Returns `None` if the name is unknown, or if it requires TLS that no policy configures.
pub(crate) fn http_protocol(app_protocol: Option<&str>, tls: bool) -> Option<AppProtocol> {
    match app_protocol {
        None | Some("") => Some(AppProtocol::Http1),
        // IANA names are case-insensitive. `tcp` names only the transport, so assume HTTP/1.1.
        Some(name) if name.eq_ignore_ascii_case("http") || name.eq_ignore_ascii_case("tcp") => {
            Some(AppProtocol::Http1)
        }
        // Common but unregistered names. They are case-sensitive, because one cloud provider uses
        // `HTTP2` for HTTP/2 over TLS.
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
