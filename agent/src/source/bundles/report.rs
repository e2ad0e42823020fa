//! Reports on the files in the bundle directory.

use serde::{Deserialize, Serialize};

use super::examine::BadBundle;

/// A report on one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleReport {
    /// Name of the file.
    pub file: String,
    /// Whether the bundle in the file is served, and if not, why.
    pub state: BundleFileState,
    /// Why the bundle cannot be served; empty if it is served or superseded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The Gateway, as `namespace/name`. This field and the fields below, except the digest, are
    /// empty if the bundle is not trusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gateway: String,
    /// The sequence number.
    #[serde(default)]
    pub sequence: u64,
    /// Digest of the bundle; empty if the file is incomplete or unreadable.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Revision of the manifest in the bundle.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Identifiers of the trusted keys with which the bundle was signed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<String>,
}

impl BundleReport {
    /// Returns a report on a bundle that is invalid, or `unfinished`: possibly still being written.
    pub(super) fn of_bad(file: String, bad: &BadBundle, unfinished: bool) -> Self {
        Self {
            file,
            state: if unfinished {
                BundleFileState::Unfinished
            } else {
                BundleFileState::Refused
            },
            reason: bad.reason.clone(),
            gateway: String::new(),
            sequence: 0,
            digest: bad.digest.clone(),
            revision: String::new(),
            signers: Vec::new(),
        }
    }
}

/// The state of a bundle file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BundleFileState {
    /// This bundle is served.
    Taken,
    /// The bundle is valid, but another bundle has a higher sequence number.
    Superseded,
    /// The bundle is valid, but older than a bundle that was already applied.
    Older,
    /// The file is incomplete, possibly because it is still being written.
    Unfinished,
    /// The bundle is not trusted, or cannot be used.
    Refused,
}
