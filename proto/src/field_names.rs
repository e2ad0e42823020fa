//! HTTP header fields that routes must not write.
//!
//! If a filter writes a field that delimits a message, the proxy and a backend may disagree about
//! the end of a request (request smuggling). All names that are not listed are allowed.

use std::fmt;

/// Why a field must not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// Selects a request's host.
    Host,
    /// Begins with `:`, so it is part of the request or status line.
    Pseudo,
    /// Delimits a message or controls a connection (RFC 9110, 7.6.1; RFC 9112, 6).
    Connection,
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "selects the host of a request",
            Self::Pseudo => "is a pseudo header: a part of the request or status line",
            Self::Connection => {
                "controls message framing or the connection, which only the proxy may do"
            }
        })
    }
}

/// Framing and hop-by-hop fields, in lower case.
const CONNECTION_FIELDS: &[&str] = &[
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Returns why a field must not be written, or `None` if it may be. Ignores case, and treats `_`
/// like `-`, because some backends do not distinguish them.
pub fn reserved(name: &str) -> Option<Reserved> {
    if name.starts_with(':') {
        return Some(Reserved::Pseudo);
    }
    let same = |known: &str| {
        let plain = |byte: u8| match byte {
            b'_' => b'-',
            byte => byte.to_ascii_lowercase(),
        };
        known.len() == name.len() && known.bytes().eq(name.bytes().map(plain))
    };
    if same("host") {
        return Some(Reserved::Host);
    }
    CONNECTION_FIELDS
        .iter()
        .any(|known| same(known))
        .then_some(Reserved::Connection)
}

/// Returns true if `path` starts with `/`, and no character ends the cookie attribute or is special
/// to a proxy.
pub fn is_cookie_path(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-/._~!$&*+,=:@".contains(&byte);
    path.starts_with('/') && path.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_headers_are_reserved_in_any_spelling() {
        for (name, expected) in [
            (":path", Some(Reserved::Pseudo)),
            (":", Some(Reserved::Pseudo)),
            ("Host", Some(Reserved::Host)),
            ("Content-Length", Some(Reserved::Connection)),
            ("content_length", Some(Reserved::Connection)),
            ("TRANSFER-ENCODING", Some(Reserved::Connection)),
            ("te", Some(Reserved::Connection)),
            ("Trailer", Some(Reserved::Connection)),
            ("X-Content-Length", None),
            ("content-length-x", None),
            ("content-type", None),
            ("hosts", None),
            ("", None),
        ] {
            assert_eq!(reserved(name), expected, "{name:?}");
        }
    }
}
