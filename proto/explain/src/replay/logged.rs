//! One request of an access log.
//!
//! Clients choose most of a line. A line that is not clearly a request is unreadable, because a
//! wrongly read request would hide a difference.

use std::net::{IpAddr, SocketAddr};

use super::super::request::{HeaderField, UrlScheme};

/// Maximum length of a path with its query, in bytes.
const MAX_TARGET_BYTES: usize = 8 << 10;
/// A longer host is not a hostname with a port.
const MAX_AUTHORITY_BYTES: usize = 300;
const MAX_METHOD_BYTES: usize = 32;

/// A request as the log shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Method.
    pub method: String,
    /// `None` if the log does not contain schemes.
    pub scheme: Option<UrlScheme>,
    /// `None` if the log does not contain hosts.
    pub authority: Option<String>,
    /// `None` if the log does not contain ports.
    pub(super) port: Option<u16>,
    /// Path and query.
    pub target: String,
    /// The headers that the log contains, with names in lower case.
    pub headers: Vec<HeaderField>,
    /// TLS server name.
    pub server_name: Option<String>,
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
            it.is_empty()
                || it.len() > MAX_AUTHORITY_BYTES
                || !is_visible(it)
                || it.contains(['/', '"'])
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

/// Reads an IP address with or without a port.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let with_port = text.parse::<SocketAddr>().map(|it| it.ip());
    with_port.or_else(|_| text.parse()).ok()
}
