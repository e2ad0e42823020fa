//! Reports on the files in the bundle directory.

use serde::{Deserialize, Serialize};

use super::examine::BadBundle;

/// A report on one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleReport {
    /// File name.
    pub file: String,
    /// Whether the bundle is served, and if not, why.
    pub state: BundleFileState,
    /// Why the bundle is not served. Empty if the bundle is served or superseded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// `namespace/name`. If the bundle is untrusted, this and all later fields except `digest` are
    /// unset.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gateway: String,
    /// Sequence number.
    #[serde(default)]
    pub sequence: u64,
    /// Empty if the file is incomplete or unreadable.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Revision of the manifest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// IDs of the trusted keys that signed the bundle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<String>,
}

impl BundleReport {
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

/// State of a bundle file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BundleFileState {
    /// Served.
    Taken,
    /// Valid, but another bundle has a higher sequence number.
    Superseded,
    /// Valid, but older than an applied bundle.
    Older,
    /// Incomplete, possibly still being written.
    Unfinished,
    /// Untrusted or unusable.
    Refused,
}
