//! Collects what a bug report needs into one file that can be handed to strangers: nothing secret is in it.
//!
//! `gather` reads, `header_values` and `redact` remove secrets, `archive` writes. What cannot be had is left out, and named with the reason.

pub(crate) mod archive;
pub(crate) mod gather;
pub(crate) mod header_values;
pub(crate) mod redact;

use serde::Serialize;

/// One file of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportPart {
    /// Path in the archive.
    pub(crate) name: String,
    /// Text of the file, or the reason why there is none.
    pub(crate) content: Result<String, String>,
}

/// Description of a file of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportPartSummary {
    /// Path in the archive.
    pub(crate) name: String,
    /// Bytes of the file.
    pub(crate) bytes: usize,
    /// Number of bytes that were left out at its beginning.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: usize,
    /// Reason why it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
