//! Conditions on client certificates in an `AccessPolicy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::CertificateNameType;

/// Names that a validated client certificate must have. At least one field must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessCertificate {
    /// Subject alternative names. The certificate must have one of them. Any names by default.
    #[serde(default)]
    #[schemars(length(max = 5))]
    pub subject_alt_names: Vec<CertificateName>,
    /// Subject that the certificate must have, in the format of RFC 2253, such as
    /// `CN=ann,O=Example`. The access log shows subjects in this format. Any subject by default.
    #[schemars(length(min = 1, max = 1024))]
    pub subject: Option<String>,
}

/// Subject alternative name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateName {
    /// `URI` or `DNS`.
    #[serde(rename = "type")]
    pub type_: CertificateNameType,
    /// The name. A URI that ends with `/*` also matches all URIs with the prefix before `*`, and
    /// a DNS name that begins with `*.` matches all names with the suffix after `*`. A wildcard in
    /// the certificate matches only itself.
    #[schemars(length(min = 1, max = 253))]
    pub value: String,
}
