//! The request to explain. Keeps the path as written, so that the explanation can show how Envoy
//! normalizes the path.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Maximum size of a URL or a header in bytes, at least as high as Envoy's default.
const MAX_BYTES: usize = 60 << 10;
/// Maximum number of headers, at least as high as Envoy's default.
const MAX_HEADERS: usize = 100;

/// A request as a client would send it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainRequest {
    /// Method.
    pub method: String,
    /// URL scheme.
    pub scheme: UrlScheme,
    /// `Host` header or `:authority`, with the port if the URL has one.
    pub authority: String,
    /// Destination port.
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// All other headers, in order.
    #[serde(default)]
    pub headers: Vec<HeaderField>,
    /// TLS server name. `None` without TLS, or if the host is an IP address.
    #[serde(default)]
    pub sni: Option<String>,
    /// True if the client presents a certificate when asked for one.
    #[serde(default)]
    pub client_certificate: bool,
    /// Client address. The client is assumed to connect directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
}

/// URL scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UrlScheme {
    /// Plaintext, port 80.
    Http,
    /// TLS, port 443.
    Https,
}

impl UrlScheme {
    /// Returns the scheme as written in URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// One header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderField {
    /// Name in lower case.
    pub name: String,
    /// Value without surrounding spaces.
    pub value: String,
}

/// Why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainRequestError {
    /// The URL is invalid.
    #[error("URL {url:?}: {reason}; expected a value such as http://shop.example.com/cart?id=1")]
    Url {
        /// The given URL.
        url: String,
        /// Error.
        reason: &'static str,
    },
    /// The method is invalid.
    #[error("method {0:?} is not an HTTP method; expected a value such as GET")]
    Method(String),
    /// A header is invalid.
    #[error("header {0:?}: expected 'Name: value'")]
    Header(String),
    /// Too many headers.
    #[error("too many headers: {0}, maximum {MAX_HEADERS}")]
    TooMany(usize),
}

impl ExplainRequest {
    /// Parses a request. Headers have the form `Name: value`; a `Host` header replaces the URL's
    /// host.
    pub fn parse(
        method: &str,
        url: &str,
        headers: &[impl AsRef<str>],
        sni: Option<&str>,
    ) -> Result<Self, ExplainRequestError> {
        let method = method.to_owned();
        if method.is_empty() || !method.bytes().all(is_token) {
            return Err(ExplainRequestError::Method(method));
        }
        if headers.len() > MAX_HEADERS {
            return Err(ExplainRequestError::TooMany(headers.len()));
        }
        let parts = split(url).map_err(|reason| ExplainRequestError::Url {
            url: url.chars().take(200).collect(),
            reason,
        })?;
        let mut authority = parts.authority.to_owned();
        let mut fields = Vec::with_capacity(headers.len());
        for header in headers {
            let field = field(header.as_ref())?;
            if field.name == "host" {
                authority = field.value;
            } else {
                fields.push(field);
            }
        }
        let is_name = !parts.host.is_empty() && parts.host.parse::<IpAddr>().is_err();
        let url_host = (is_name && !parts.host.starts_with('[')).then_some(parts.host);
        let sni = sni
            .or(url_host)
            .filter(|_| parts.scheme == UrlScheme::Https);
        Ok(Self {
            method,
            scheme: parts.scheme,
            authority,
            port: parts.port,
            path: parts.path,
            headers: fields,
            sni: sni.map(|name| name.trim_end_matches('.').to_owned()),
            client_certificate: false,
            client: None,
        })
    }
}

impl fmt::Display for ExplainRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme.as_str();
        write!(
            f,
            "{} {scheme}://{}{}",
            self.method, self.authority, self.path
        )
    }
}

struct UrlParts<'u> {
    scheme: UrlScheme,
    authority: &'u str,
    host: &'u str,
    port: u16,
    path: String,
}

fn split(url: &str) -> Result<UrlParts<'_>, &'static str> {
    if url.len() > MAX_BYTES {
        return Err("it is too long");
    }
    if !url.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) {
        return Err("it has a space or a non-ASCII character, which must be percent-encoded");
    }
    let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => UrlScheme::Http,
        "https" => UrlScheme::Https,
        _ => return Err("its scheme is neither http nor https"),
    };
    // Clients never send the fragment.
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err("it has a user name; send credentials as a header");
    }
    let port_at = authority.rfind(':').filter(|colon| {
        let bracket = authority.rfind(']');
        bracket.is_none_or(|bracket| bracket < *colon)
    });
    let (host, port) = match port_at {
        Some(colon) => {
            let (host, port) = authority.split_at(colon);
            let port = port.trim_start_matches(':').parse::<u16>();
            (
                host,
                port.map_err(|_| "its port is not a number from 1 to 65535")?,
            )
        }
        None if scheme == UrlScheme::Https => (authority, 443),
        None => (authority, 80),
    };
    if host.is_empty() || port == 0 {
        return Err("it has no host, or port 0");
    }
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    Ok(UrlParts {
        scheme,
        authority,
        host,
        port,
        path,
    })
}

fn field(text: &str) -> Result<HeaderField, ExplainRequestError> {
    let error = || ExplainRequestError::Header(text.chars().take(200).collect());
    let (name, value) = text.split_once(':').ok_or_else(error)?;
    let value = value.trim_matches([' ', '\t']);
    let good = !name.is_empty()
        && name.bytes().all(is_token)
        && text.len() <= MAX_BYTES
        && !value
            .bytes()
            .any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f);
    good.then(|| HeaderField {
        name: name.to_ascii_lowercase(),
        value: value.to_owned(),
    })
    .ok_or_else(error)
}

/// Returns true if RFC 9110 allows the character in tokens.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<ExplainRequest, ExplainRequestError> {
        ExplainRequest::parse("GET", url, &[] as &[&str], None)
    }

    #[test]
    fn url_is_kept_as_written() {
        for (url, authority, port, path, sni) in [
            ("http://a.test", "a.test", 80, "/", None),
            ("HTTPS://A.test/x", "A.test", 443, "/x", Some("A.test")),
            ("http://a.test:8080?q=1", "a.test:8080", 8080, "/?q=1", None),
            (
                "https://a.test/../%2F#top",
                "a.test",
                443,
                "/../%2F",
                Some("a.test"),
            ),
            ("https://[::1]:1/", "[::1]:1", 1, "/", None),
            ("https://192.0.2.1/", "192.0.2.1", 443, "/", None),
        ] {
            let request = parse(url).expect(url);
            assert_eq!(request.authority, authority, "{url}");
            assert_eq!(request.port, port, "{url}");
            assert_eq!(request.path, path, "{url}");
            assert_eq!(request.sni.as_deref(), sni, "{url}");
        }
    }

    #[test]
    fn a_url_that_nobody_could_send_is_refused() {
        for (url, word) in [
            ("a.test/x", "scheme"),
            ("ftp://a.test", "neither"),
            ("http:///x", "no host"),
            ("http://a.test:0/", "port 0"),
            ("http://a.test:x/", "not a number"),
            ("http://u@a.test/", "a user"),
            ("http://a.test/é", "percent-encoded"),
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }

    #[test]
    fn host_header_replaces_authority_but_not_server_name() {
        let headers = ["Host: b.test", "X-One:  1 "];
        let request = ExplainRequest::parse("GET", "https://a.test/", &headers, None).unwrap();
        assert_eq!(request.authority, "b.test");
        assert_eq!(request.sni.as_deref(), Some("a.test"));
        let one = HeaderField {
            name: "x-one".to_owned(),
            value: "1".to_owned(),
        };
        assert_eq!(request.headers, [one]);
        for bad in ["x", ": 1", "a b: 1", "a: \n"] {
            assert!(ExplainRequest::parse("GET", "http://a/", &[bad], None).is_err());
        }
        assert!(ExplainRequest::parse("G T", "http://a/", &[] as &[&str], None).is_err());
    }
}
