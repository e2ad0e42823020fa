//! What the `appProtocol` of a Service port says of how to speak to it.
//!
//! Kubernetes leaves the field to names of IANA and to its own (`kubernetes.io/h2c`); others are what people write all the
//! same. A name that nobody knows is refused: to guess would be to speak plain text to who expects something else.

use sesame_proto::schema::AppProtocol;

/// What is spoken on a port where a route says no more than HTTP; none if it is unknown, or has to be spoken over TLS
/// and nothing says how.
pub(crate) fn http_protocol(app_protocol: Option<&str>, tls: bool) -> Option<AppProtocol> {
    match app_protocol {
        None | Some("") => Some(AppProtocol::Http1),
        // Names of IANA are the same in upper case. `tcp` says no more than the port itself does.
        Some(name) if name.eq_ignore_ascii_case("http") || name.eq_ignore_ascii_case("tcp") => {
            Some(AppProtocol::Http1)
        }
        // The last two are nobody's names, but widely used. Not in upper case: `HTTP2` is one cloud's name for TLS.
        Some("kubernetes.io/h2c" | "grpc" | "h2" | "http2") => Some(AppProtocol::Http2),
        Some("kubernetes.io/ws") => Some(AppProtocol::Websocket),
        // Never in plain text.
        Some(name) if is_https(name) && tls => Some(AppProtocol::Http1),
        Some("kubernetes.io/wss") if tls => Some(AppProtocol::Websocket),
        Some(_) => None,
    }
}

pub(crate) fn is_https(app_protocol: &str) -> bool {
    app_protocol.eq_ignore_ascii_case("https")
}
