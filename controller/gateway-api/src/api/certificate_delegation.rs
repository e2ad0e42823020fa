//! `TLSCertificateDelegation` of `projectcontour.io/v1`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Object;

/// `TLSCertificateDelegation` v1.
pub type TlsCertificateDelegation = Object<TlsCertificateDelegationSpec>;

/// `TLSCertificateDelegationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct TlsCertificateDelegationSpec {
    /// Permissions for other namespaces to refer to Secrets in the delegation's namespace.
    pub delegations: Vec<CertificateDelegation>,
}

/// `CertificateDelegation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CertificateDelegation {
    /// A Secret in the delegation's namespace.
    pub secret_name: String,
    /// The namespaces that may refer to the Secret; a single entry `*` means all.
    pub target_namespaces: Vec<String>,
}
