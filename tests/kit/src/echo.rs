//! The body of an echo backend's response, which describes the request as received.

use serde::{Deserialize, Serialize};

/// A request as the backend received it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// Name of the backend that received the request.
    pub backend: String,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: String,
    /// The method.
    pub method: String,
    /// The `Host` header or `:authority`.
    pub host: String,
    /// The path and query.
    pub path: String,
    /// Received headers in order, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The TLS handshake, or `None` for plaintext.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EchoTls>,
}

/// TLS handshake parameters as seen by the backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EchoTls {
    /// The SNI, or empty if absent.
    pub server_name: String,
    /// The client's leaf certificate (DER in base64), or empty if absent.
    pub client_certificate: String,
}

impl Echo {
    /// Returns all values of a header.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// Returns a header's value if it occurs exactly once.
    pub fn value(&self, name: &str) -> Option<&str> {
        match self.values(name).as_slice() {
            [value] => Some(value),
            _ => None,
        }
    }
}
