//! `TLSCertificateDelegation` in `projectcontour.io/v1`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Object;

/// `TLSCertificateDelegation` v1.
pub type TlsCertificateDelegation = Object<TlsCertificateDelegationSpec>;

/// `TLSCertificateDelegationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct TlsCertificateDelegationSpec {
    /// Secrets in the delegation's namespace, and the namespaces that may refer to them.
    pub delegations: Vec<CertificateDelegation>,
}

/// `CertificateDelegation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CertificateDelegation {
    /// A Secret in the delegation's namespace.
    pub secret_name: String,
    /// The namespaces that may refer to the Secret. A single `*` entry means all namespaces.
    pub target_namespaces: Vec<String>,
}
