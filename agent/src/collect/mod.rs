//! Collects the data for a bug report in a single file that contains no secrets, so that users can
//! share the file.
//!
//! `gather` inspects the host, `header_values` and `redact` remove secrets, and `archive` writes
//! the file. If a part is unavailable, the archive contains the reason instead.

pub(crate) mod archive;
pub(crate) mod gather;
pub(crate) mod header_values;
pub(crate) mod redact;

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportPart {
    /// Path in the archive.
    pub(crate) name: String,
    /// Content of the file, or why the content is missing.
    pub(crate) content: Result<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportPartSummary {
    /// Path in the archive.
    pub(crate) name: String,
    /// Size of the file in the archive, in bytes.
    pub(crate) bytes: usize,
    /// Number of bytes that were cut off at the beginning, because the part was too large.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: usize,
    /// Why the file is missing, or `None` if it is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
