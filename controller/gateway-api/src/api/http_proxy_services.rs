//! Services of an `HTTPProxy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Noted, ProxyHeaders, ProxySlowStart};

/// `Service`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyService {
    /// A Service in the proxy's namespace.
    pub name: String,
    /// The port.
    pub port: i32,
    /// Not supported.
    pub health_port: Option<i32>,
    /// `h2c`, `h2` or `tls`; takes precedence over `appProtocol` of the Service's port.
    pub protocol: Option<Box<str>>,
    /// The share of requests; equal shares if all weights are 0.
    pub weight: i32,
    /// Verification of the Service's certificate, for `h2` and `tls`.
    pub validation: Option<ProxyValidation>,
    /// True if the Service receives copies of requests.
    pub mirror: bool,
    /// Request header modifications.
    pub request_headers_policy: Option<ProxyHeaders>,
    /// Response header modifications.
    pub response_headers_policy: Option<ProxyHeaders>,
    /// Not supported.
    pub cookie_rewrite_policies: Vec<Noted>,
    /// Gradual increase of the share of new endpoints.
    pub slow_start_policy: Option<ProxySlowStart>,
}

/// `UpstreamValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyValidation {
    /// The Secret with `ca.crt`: `name`, or `namespace/name`.
    pub ca_secret: String,
    /// A DNS name that the certificate must have.
    pub subject_name: String,
    /// DNS names, one of which the certificate must have; `subjectName` is the first.
    pub subject_names: Vec<String>,
}
