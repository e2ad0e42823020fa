//! TLS and TCP proxying of an `HTTPProxy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{ProxyLoadBalancer, ProxyService, ProxyTcpHealthCheck};

/// `TLS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyTls {
    /// The Secret with the certificate, as `name` or `namespace/name`.
    pub secret_name: String,
    /// Minimum TLS version: `1.2` or `1.3`.
    pub minimum_protocol_version: String,
    /// Maximum TLS version: `1.2` or `1.3`.
    pub maximum_protocol_version: String,
    /// If true, passes TLS connections through to the Services in `tcpproxy`.
    pub passthrough: bool,
    /// Validation of client certificates.
    pub client_validation: Option<ProxyClientValidation>,
    /// True to also serve clients that send no server name, or an unknown one, with the certificate
    /// of `spec.ingress.fallbackCertificate` of the SesameConfiguration.
    pub enable_fallback_certificate: bool,
}

/// `DownstreamValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyClientValidation {
    /// The Secret that contains `ca.crt`, as `name` or `namespace/name`.
    pub ca_secret: String,
    /// If true, accepts any client certificate.
    pub skip_client_cert_validation: bool,
    /// Client certificate details to forward to backends.
    pub forward_client_certificate: Option<ProxyForwardedCertificate>,
    /// The Secret that contains `crl.pem`, as `name` or `namespace/name`.
    pub crl_secret: String,
    /// If true, checks only the client's own certificate for revocation.
    pub crl_only_verify_leaf_cert: bool,
    /// True if clients may omit the certificate.
    pub optional_client_certificate: bool,
}

/// `ClientCertificateDetails`: which details `x-forwarded-client-cert` contains.
#[expect(clippy::struct_excessive_bools, reason = "as the API has them")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyForwardedCertificate {
    /// The subject.
    pub subject: bool,
    /// The certificate.
    pub cert: bool,
    /// The chain.
    pub chain: bool,
    /// The DNS names.
    pub dns: bool,
    /// The URI.
    pub uri: bool,
}

/// `TCPProxy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyTcp {
    /// The Services that receive the connections.
    pub services: Vec<ProxyService>,
    /// HTTPProxy whose Services receive the connections.
    pub include: Option<ProxyTcpInclude>,
    /// The former name of `include`; ignored if both are set.
    pub includes: Option<ProxyTcpInclude>,
    /// Load balancing across endpoints.
    pub load_balancer_policy: Option<ProxyLoadBalancer>,
    /// Endpoint health checks.
    pub health_check_policy: Option<ProxyTcpHealthCheck>,
}

/// `TCPProxyInclude`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyTcpInclude {
    /// Name of the proxy.
    pub name: String,
    /// Namespace of the proxy; defaults to the namespace of the including proxy.
    pub namespace: String,
}
