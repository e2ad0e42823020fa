//! `ReferenceGrant` and `BackendTLSPolicy`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Object, ObjectRef, RequestKeyType, SubjectAltNameType, WellKnownCaCertificates};

/// `ReferenceGrant` v1 and v1beta1.
pub type ReferenceGrant = Object<ReferenceGrantSpec>;
/// `BackendTLSPolicy` v1.
pub type BackendTlsPolicy = Object<BackendTlsPolicySpec>;

/// `ReferenceGrantSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantSpec {
    /// Kinds and namespaces that may refer to the objects in `to`. A reference must match at least
    /// one entry.
    pub from: Vec<GrantFrom>,
    /// Objects that may be referenced. A reference must match at least one entry.
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
    /// Name of the object. If unset, the entry matches all objects of the kind.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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
    /// Section of the target: the name of a listener, rule or Service port.
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
}

/// Part of a request that serves as a hash key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestKey {
    /// Part of the request.
    #[serde(rename = "type")]
    pub type_: RequestKeyType,
    /// Name of the header, cookie or query parameter.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
}

/// `BackendTLSPolicyValidation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsValidation {
    /// Objects with CA certificates, in the policy's namespace.
    #[serde(default)]
    pub ca_certificate_refs: Vec<ObjectRef>,
    /// A set of CA certificates that the host provides. Replaces `ca_certificate_refs`.
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<WellKnownCaCertificates>,
    /// The SNI. Certificates must also have this name, unless `subject_alt_names` is set.
    pub hostname: String,
    /// Names. A certificate must have at least one of them.
    #[serde(default)]
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// Subject alternative name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectAltName {
    /// Type of the name, which determines the field below that must be set.
    #[serde(rename = "type")]
    pub type_: SubjectAltNameType,
    /// The DNS name for type `Hostname`.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub hostname: String,
    /// The URI for type `URI`.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub uri: String,
}
