//! Collects the data for a bug report in one file without secrets, which users can safely share.
//!
//! `gather` inspects the host, `header_values` and `redact` remove secrets, and `archive` writes
//! the file. Parts that are unavailable are listed with the reason.

pub(crate) mod archive;
pub(crate) mod gather;
pub(crate) mod header_values;
pub(crate) mod redact;

use serde::Serialize;

/// One file in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportPart {
    /// Path in the archive.
    pub(crate) name: String,
    /// Text of the file, or the reason why it is missing.
    pub(crate) content: Result<String, String>,
}

/// Summary of a file in the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportPartSummary {
    /// Path in the archive.
    pub(crate) name: String,
    /// Size in bytes.
    pub(crate) bytes: usize,
    /// Number of bytes cut from the beginning of the file.
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
