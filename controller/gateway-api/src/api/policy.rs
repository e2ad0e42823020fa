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
    /// The objects that may refer; any of these.
    pub from: Vec<GrantFrom>,
    /// The objects that may be referred to; any of these.
    pub to: Vec<GrantTo>,
}

/// `ReferenceGrantFrom`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantTo {
    /// API group; empty is core.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// All objects of the kind when absent.
    pub name: Option<String>,
}

/// `BackendTLSPolicySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsPolicySpec {
    /// The Services it applies to.
    pub target_refs: Vec<PolicyTargetRef>,
    /// Validation of backends.
    pub validation: BackendTlsValidation,
    /// Implementation-specific options.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// `LocalPolicyTargetReferenceWithSectionName`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTargetRef {
    /// API group; empty is core.
    #[schemars(length(max = 253))]
    pub group: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Part of the target: the name of a Service's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
}

/// Part of a request whose value counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestKey {
    /// Part.
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
    /// CA certificates in the policy's own namespace.
    #[serde(default)]
    pub ca_certificate_refs: Vec<ObjectRef>,
    /// A set of CA certificates known to the host.
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<WellKnownCaCertificates>,
    /// The SNI, and the name to verify unless `subject_alt_names` is set.
    pub hostname: String,
    /// The names to verify.
    #[serde(default)]
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// Name in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectAltName {
    /// The kind of name: selects the field below that is set.
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
