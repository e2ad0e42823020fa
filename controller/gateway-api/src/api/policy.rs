//! `ReferenceGrant` and `BackendTLSPolicy`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Object, ObjectRef, RequestKeyType, SubjectAltNameType, WellKnownCaCertificates};

/// `ReferenceGrant` v1 and v1beta1.
pub type ReferenceGrant = Object<ReferenceGrantSpec>;
/// `BackendTLSPolicy` v1.
pub type BackendTlsPolicy = Object<BackendTlsPolicySpec>;

/// `ReferenceGrantSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantSpec {
    /// Who may refer to the objects in `to`. A reference must match at least one entry.
    pub from: Vec<GrantFrom>,
    /// Which objects may be referred to. A reference must match at least one entry.
    pub to: Vec<GrantTo>,
}

/// `ReferenceGrantFrom`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantFrom {
    /// API group; core if empty.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
}

/// `ReferenceGrantTo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantTo {
    /// API group; core if empty.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name of the object. If unset, all objects of the kind.
    pub name: Option<String>,
}

/// `BackendTLSPolicySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsPolicySpec {
    /// The Services to which the policy applies.
    pub target_refs: Vec<PolicyTargetRef>,
    /// How backend certificates are validated.
    pub validation: BackendTlsValidation,
    /// Implementation-specific options.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// `LocalPolicyTargetReferenceWithSectionName`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTargetRef {
    /// API group; core if empty.
    #[schemars(length(max = 253))]
    pub group: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Section of the target: the name of a listener, a rule or a Service's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
}

/// Part of a request whose value is used as a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestKey {
    /// Part of the request.
    #[serde(rename = "type")]
    pub type_: RequestKeyType,
    /// Name of the header, cookie or query parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
}

/// `BackendTLSPolicyValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsValidation {
    /// CA certificates, in the policy's own namespace.
    #[serde(default)]
    pub ca_certificate_refs: Vec<ObjectRef>,
    /// A set of CA certificates that the host provides, used instead of `ca_certificate_refs`.
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<WellKnownCaCertificates>,
    /// The SNI. Also the name that certificates must have, unless `subject_alt_names` is set.
    pub hostname: String,
    /// Names of which a certificate must have at least one.
    #[serde(default)]
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// Name in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectAltName {
    /// Type of the name; selects which field below is set.
    #[serde(rename = "type")]
    pub type_: SubjectAltNameType,
    /// For Hostname.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub hostname: String,
    /// For URI.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub uri: String,
}
