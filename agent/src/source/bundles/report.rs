//! The report on a file in the bundle directory.

use serde::{Deserialize, Serialize};

use super::examine::BadBundle;

/// The report on one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleReport {
    /// Name of the file.
    pub file: String,
    /// State of the file.
    pub state: BundleFileState,
    /// Why the file is not used.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The Gateway, `namespace/name`. It is empty, like all fields below, if the bundle is not
    /// trusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gateway: String,
    /// The sequence number.
    #[serde(default)]
    pub sequence: u64,
    /// Digest of the bundle; known for every complete file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Revision of the manifest in the bundle.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Identifiers of the trusted keys that signed the bundle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<String>,
}

impl BundleReport {
    /// Returns the report on an invalid bundle, which may be `unfinished`.
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

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BundleFileState {
    /// The source uses the file's content.
    Taken,
    /// The file is valid, but another bundle has a higher sequence number.
    Superseded,
    /// The file is valid, but older than a bundle that was already applied.
    Older,
    /// The file is incomplete; its writer may not be done yet.
    Unfinished,
    /// The file is not trusted, or cannot be used.
    Refused,
}
