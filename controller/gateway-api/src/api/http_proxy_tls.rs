//! TLS of an `HTTPProxy`.

use schemars::JsonSchema;
use serde::Deserialize;

/// `TLS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyTls {
    /// The Secret: `name`, or `namespace/name`.
    pub secret_name: String,
    /// `1.2` or `1.3`.
    pub minimum_protocol_version: String,
    /// `1.2` or `1.3`.
    pub maximum_protocol_version: String,
    /// Not served.
    pub passthrough: bool,
    /// Certificates of clients.
    pub client_validation: Option<ProxyClientValidation>,
    /// Not served.
    pub enable_fallback_certificate: bool,
}

/// `DownstreamValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyClientValidation {
    /// The Secret with `ca.crt`: `name`, or `namespace/name`.
    pub ca_secret: String,
    /// True if any certificate is accepted.
    pub skip_client_cert_validation: bool,
    /// What backends get of the certificate.
    pub forward_client_certificate: Option<ProxyForwardedCertificate>,
    /// The Secret with `crl.pem`: `name`, or `namespace/name`.
    pub crl_secret: String,
    /// True if only the client's own certificate may be revoked.
    pub crl_only_verify_leaf_cert: bool,
    /// True if a certificate may be missing.
    pub optional_client_certificate: bool,
}

/// `ClientCertificateDetails`: the parts in `x-forwarded-client-cert`.
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
