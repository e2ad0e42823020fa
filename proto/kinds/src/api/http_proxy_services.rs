//! Services of an `HTTPProxy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{ProxyCookieRewrite, ProxyHeaders, ProxySlowStart};

/// `Service`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyService {
    /// A Service in the proxy's namespace.
    pub name: String,
    /// The port.
    pub port: i32,
    /// Port of the Service for health checks. Not supported, so it has no effect.
    pub health_port: Option<i32>,
    /// Protocol: `h2c`, `h2` or `tls`. Takes precedence over the Service port's `appProtocol`.
    pub protocol: Option<Box<str>>,
    /// Share of requests, relative to the other weights. If all weights are 0, the shares are
    /// equal.
    pub weight: i32,
    /// Verification of the Service's certificate, for `h2` and `tls`.
    pub validation: Option<ProxyValidation>,
    /// True if the Service receives copies of requests.
    pub mirror: bool,
    /// Request header modifications.
    pub request_headers_policy: Option<ProxyHeaders>,
    /// Response header modifications.
    pub response_headers_policy: Option<ProxyHeaders>,
    /// Changes to cookies. Not supported, so they have no effect.
    pub cookie_rewrite_policies: Vec<ProxyCookieRewrite>,
    /// Gradually increases the share of requests that new endpoints receive.
    pub slow_start_policy: Option<ProxySlowStart>,
}

/// `UpstreamValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyValidation {
    /// The Secret that contains `ca.crt`, as `name` or `namespace/name`.
    pub ca_secret: String,
    /// A DNS name that the certificate must have.
    pub subject_name: String,
    /// DNS names. The certificate must have at least one of them. The first must equal
    /// `subjectName`.
    pub subject_names: Vec<String>,
}
