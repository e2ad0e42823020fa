//! Answers of an echo backend: the request as it arrived.

use serde::{Deserialize, Serialize};

/// One request as a backend saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// The backend's name.
    pub backend: String,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: String,
    /// The method.
    pub method: String,
    /// The `Host` header or `:authority`.
    pub host: String,
    /// The path with its query.
    pub path: String,
    /// The headers in their order, a repeated one as often as it came. Names are lower case.
    pub headers: Vec<(String, String)>,
    /// Facts of the TLS handshake; none in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EchoTls>,
}

/// A TLS handshake as a backend saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EchoTls {
    /// The server name that was asked for; empty for none.
    pub server_name: String,
    /// The leaf that the client showed, as DER in base64; empty for none.
    pub client_certificate: String,
}

impl Echo {
    /// Every value of a header.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The value of a header that is there once.
    pub fn value(&self, name: &str) -> Option<&str> {
        match self.values(name).as_slice() {
            [value] => Some(value),
            _ => None,
        }
    }
}
