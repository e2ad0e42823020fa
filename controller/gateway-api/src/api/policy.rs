//! `ReferenceGrant` and `BackendTLSPolicy`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Object, ObjectRef, SubjectAltNameType, WellKnownCaCertificates};

/// `ReferenceGrant` v1 and v1beta1.
pub type ReferenceGrant = Object<ReferenceGrantSpec>;
/// `BackendTLSPolicy` v1.
pub type BackendTlsPolicy = Object<BackendTlsPolicySpec>;

/// `ReferenceGrantSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantSpec {
    /// The objects that may refer; any of these.
    #[serde(deserialize_with = "super::exact::vec")]
    pub from: Vec<GrantFrom>,
    /// The objects that may be referred to; any of these.
    #[serde(deserialize_with = "super::exact::vec")]
    pub to: Vec<GrantTo>,
}

/// `ReferenceGrantFrom`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantFrom {
    /// API group; empty is core.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
}

/// `ReferenceGrantTo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantTo {
    /// API group; empty is core.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// All objects of the kind when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `BackendTLSPolicySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsPolicySpec {
    /// The Services it applies to.
    #[serde(deserialize_with = "super::exact::vec")]
    pub target_refs: Vec<PolicyTargetRef>,
    /// Validation of backends.
    pub validation: BackendTlsValidation,
    /// Implementation-specific options.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// `LocalPolicyTargetReferenceWithSectionName`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTargetRef {
    /// API group; empty is core.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// The name of one port of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
}

/// `BackendTLSPolicyValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsValidation {
    /// CA certificates in the policy's own namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub ca_certificate_refs: Vec<ObjectRef>,
    /// A set of CA certificates that the host knows.
    #[serde(
        default,
        rename = "wellKnownCACertificates",
        skip_serializing_if = "Option::is_none"
    )]
    pub well_known_ca_certificates: Option<WellKnownCaCertificates>,
    /// The SNI, and the name to verify unless `subject_alt_names` is set.
    pub hostname: String,
    /// The names to verify.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// `SubjectAltName`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectAltName {
    /// The member below that is set.
    #[serde(rename = "type")]
    pub type_: SubjectAltNameType,
    /// For Hostname.
    #[serde(default)]
    pub hostname: String,
    /// For URI.
    #[serde(default)]
    pub uri: String,
}
