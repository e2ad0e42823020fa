//! Collects the data for a bug report in a single file that contains no secrets.
//!
//! If a part is unavailable, the archive contains the reason instead.

pub(crate) mod archive;
pub(crate) mod gather;
pub(crate) mod header_values;
pub(crate) mod redact;

use std::fmt::Display;

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportPart {
    pub(crate) name: String,
    pub(crate) content: Result<String, String>,
}

impl ReportPart {
    pub(crate) fn new<E: Display>(name: impl Into<String>, content: Result<String, E>) -> Self {
        Self {
            name: name.into(),
            content: content.map_err(|error| error.to_string()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportPartSummary {
    pub(crate) name: String,
    pub(crate) bytes: usize,
    /// Number of bytes truncated from the beginning.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
