//! One request of an access log, and the lines of Sesame's own JSON log.
//!
//! Clients choose most of a line. A line that is not clearly a request is unreadable, because a
//! wrongly read request would hide a difference.

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::request::{HeaderField, UrlScheme};

/// Maximum length of a path with its query, in bytes.
const MAX_TARGET_BYTES: usize = 8 << 10;
/// A longer host is not a hostname with a port.
const MAX_AUTHORITY_BYTES: usize = 300;
const MAX_METHOD_BYTES: usize = 32;
/// Sesame's log truncates longer paths.
const MAX_LOGGED_PATH_BYTES: usize = 1024;

/// A request as the log shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LoggedRequest {
    pub(super) method: String,
    pub(super) scheme: Option<UrlScheme>,
    /// `None` if the log does not contain hosts.
    pub(super) authority: Option<String>,
    /// `None` if the log does not contain ports.
    pub(super) port: Option<u16>,
    /// Path and query.
    pub(super) target: String,
    pub(super) headers: Vec<HeaderField>,
    pub(super) server_name: Option<String>,
    pub(super) client: Option<IpAddr>,
    pub(super) client_certificate: bool,
    pub(super) gateway: Option<String>,
    /// Name of the route that served the request.
    pub(super) route: Option<String>,
    /// The log omits the query, even if the request has one.
    pub(super) without_query: bool,
}

impl LoggedRequest {
    pub(super) fn add_header(&mut self, name: &str, value: Option<&str>) {
        let value = value.unwrap_or("-");
        if value != "-" {
            self.headers.push(HeaderField {
                name: name.to_owned(),
                value: value.to_owned(),
            });
        }
    }

    /// Checks the parts that every format has.
    pub(super) fn check(self) -> Result<Self, &'static str> {
        let is_visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let method = self.method.as_bytes();
        if method.is_empty()
            || method.len() > MAX_METHOD_BYTES
            || !method
                .iter()
                .all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(byte))
        {
            return Err("the method is not an HTTP method");
        }
        if !self.target.starts_with('/') || !is_visible(&self.target) {
            return Err("the path must begin with a slash, and contain only visible ASCII");
        }
        if self.target.len() > MAX_TARGET_BYTES {
            return Err("the path is longer than 8192 bytes");
        }
        let authority = self.authority.as_deref();
        if authority.is_some_and(|it| {
            it.is_empty() || it.len() > MAX_AUTHORITY_BYTES || !is_visible(it) || it.contains('/')
        }) {
            return Err("the host is not a hostname");
        }
        if self.port == Some(0) {
            return Err("the port is 0");
        }
        let headers = self.headers.iter().flat_map(|it| [&it.name, &it.value]);
        let texts = headers.chain(&self.server_name).chain(&self.gateway);
        let mut texts = texts.chain(&self.route);
        let is_odd = texts.any(|it| it.bytes().any(|byte| byte.is_ascii_control()));
        drop(texts);
        if is_odd {
            return Err("a header or name contains a control character");
        }
        Ok(self)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SesameLine {
    method: Option<String>,
    host: Option<String>,
    path: Option<String>,
    port: Option<u16>,
    protocol: Option<String>,
    gateway: Option<String>,
    route: Option<String>,
    listener: Option<IgnoredAny>,
    grpc_status: Option<IgnoredAny>,
    tls_version: Option<IgnoredAny>,
    tls_server_name: Option<String>,
    client_certificate_sha256: Option<IgnoredAny>,
    client_certificate_subject: Option<IgnoredAny>,
    client_address: Option<String>,
    user_agent: Option<String>,
}

/// Reads a line of Sesame's JSON log. Returns `None` for a TCP or TLS connection or a UDP session.
pub(super) fn sesame(line: &str) -> Result<Option<LoggedRequest>, &'static str> {
    let line: SesameLine =
        serde_json::from_str(line).map_err(|_| "the line is not a complete JSON object")?;
    let SesameLine {
        method,
        host,
        path,
        port,
        protocol,
        gateway,
        route,
        listener,
        grpc_status,
        tls_version,
        tls_server_name,
        client_certificate_sha256,
        client_certificate_subject,
        client_address,
        user_agent,
    } = line;
    let (Some(method), Some(target)) = (method, path) else {
        let http = protocol.is_some_and(|it| it.starts_with("HTTP"));
        return if http || port.is_none() {
            Err("the line has no method or no path")
        } else {
            Ok(None)
        };
    };
    if target.len() >= MAX_LOGGED_PATH_BYTES {
        return Err("the log truncated the path");
    }
    // Lines for plain HTTP have no listener.
    let tls = listener.is_some() || tls_version.is_some();
    let scheme = match (tls, port) {
        (true, _) => Some(UrlScheme::Https),
        (false, Some(_)) => Some(UrlScheme::Http),
        (false, None) => None,
    };
    let mut request = LoggedRequest {
        method,
        scheme,
        authority: host,
        port,
        target,
        headers: Vec::new(),
        server_name: tls_server_name,
        client: client_address.as_deref().and_then(address),
        client_certificate: client_certificate_sha256.is_some()
            || client_certificate_subject.is_some(),
        gateway,
        route,
        without_query: true,
    };
    request.add_header("user-agent", user_agent.as_deref());
    let grpc = grpc_status.map(|_| "application/grpc");
    request.add_header("content-type", grpc);
    request.check().map(Some)
}

/// Reads an IP address with or without a port.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let with_port = text.parse::<SocketAddr>().map(|it| it.ip());
    with_port.or_else(|_| text.parse()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"client_address":"203.0.113.9:50412","gateway":"Gateway/shop/edge","host":"shop.example.com",
        "listener":"Gateway/shop/edge/listeners/https","method":"GET","path":"/cart","port":443,"protocol":"HTTP/2",
        "tls_server_name":"shop.example.com","tls_version":"TLSv1.3","user_agent":"curl/8.5.0","grpc_status":0}"#;

    #[test]
    fn sesame_line_has_every_part() {
        let request = sesame(LINE).unwrap().unwrap();
        assert_eq!(request.scheme, Some(UrlScheme::Https));
        assert_eq!(request.authority.as_deref(), Some("shop.example.com"));
        assert_eq!(
            (request.port, request.target.as_str()),
            (Some(443), "/cart")
        );
        assert_eq!(request.client, Some(IpAddr::from([203, 0, 113, 9])));
        let names: Vec<&str> = request.headers.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["user-agent", "content-type"]);
        assert!(request.without_query && !request.client_certificate);
        let plain = r#"{"method":"GET","path":"/","port":80,"protocol":"HTTP/1.1"}"#;
        let plain = sesame(plain).unwrap().unwrap();
        assert_eq!(
            (plain.scheme, plain.authority),
            (Some(UrlScheme::Http), None)
        );
    }

    #[test]
    fn sesame_connection_is_not_a_request() {
        let line = r#"{"port":5432,"protocol":"TCP","listener":"Gateway/a/b/listeners/tcp"}"#;
        assert_eq!(sesame(line), Ok(None));
    }

    #[test]
    fn hostile_sesame_lines_are_unreadable() {
        let long = format!(
            r#"{{"method":"GET","path":"/{}","port":80}}"#,
            "a".repeat(1023)
        );
        for line in [
            "{",
            "{}",
            "{\"method\":\"GET\"",
            r#"{"method":1,"path":"/"}"#,
            r#"{"method":"GET","path":"/","port":0}"#,
            r#"{"method":"GET","path":"/","port":65536}"#,
            r#"{"method":"GET","path":"x"}"#,
            r#"{"method":"GET","path":"/a b"}"#,
            r#"{"method":"GET","path":"/\u001b[2J"}"#,
            r#"{"method":"GET","path":"/é"}"#,
            r#"{"method":"GET","path":"/","host":"a\nb"}"#,
            r#"{"method":"GET","path":"/","host":""}"#,
            r#"{"method":"GET","path":"/","host":"a/b"}"#,
            r#"{"method":"G T","path":"/"}"#,
            r#"{"method":"GET","path":"/","user_agent":"a\nb"}"#,
            r#"{"method":"GET","path":"/","gateway":"a\nb"}"#,
            r#"{"method":"GET","path":"/","tls_server_name":"\u007f"}"#,
            r#"{"method":"","path":"/"}"#,
            r#"{"method":"GET","method":"PUT","path":"/"}"#,
            r#"{"port":80,"protocol":"HTTP/1.1"}"#,
            &long,
        ] {
            assert!(sesame(line).is_err(), "{line}");
        }
        let nested = "[".repeat(10_000);
        assert!(sesame(&format!("{{\"x\":{nested}")).is_err());
    }
}
