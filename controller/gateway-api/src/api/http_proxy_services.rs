//! Services of an `HTTPProxy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Noted, ProxyHeaders, ProxySlowStart};

/// `Service`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyService {
    /// A Service of the proxy's namespace.
    pub name: String,
    /// The port.
    pub port: i32,
    /// Not served.
    pub health_port: Option<i32>,
    /// `h2c`, `h2` or `tls`; precedes `appProtocol` of the Service's port.
    pub protocol: Option<Box<str>>,
    /// The share of requests; even shares if all are 0.
    pub weight: i32,
    /// Verification of its certificate, for `h2` and `tls`.
    pub validation: Option<ProxyValidation>,
    /// True if it gets copies of requests.
    pub mirror: bool,
    /// Changes of request headers.
    pub request_headers_policy: Option<ProxyHeaders>,
    /// Changes of response headers.
    pub response_headers_policy: Option<ProxyHeaders>,
    /// Not served.
    pub cookie_rewrite_policies: Vec<Noted>,
    /// The growth of a new endpoint's share.
    pub slow_start_policy: Option<ProxySlowStart>,
}

/// `UpstreamValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyValidation {
    /// The Secret with `ca.crt`: `name`, or `namespace/name`.
    pub ca_secret: String,
    /// A DNS name of the certificate.
    pub subject_name: String,
    /// DNS names, of which the certificate has one; `subjectName` is the first.
    pub subject_names: Vec<String>,
}
