//! Checks whether a host is fit to serve, and fixes problems that are safe to fix.
//!
//! `gather` collects the facts, `checks` derives findings from them (pure), and `fix` applies
//! remedies that change only Sesame's own files.

mod checks;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub mod facts;
pub(crate) mod fix;
pub(crate) mod gather;
mod paths;
pub(crate) mod systemd;

use std::path::PathBuf;

use serde::Serialize;

use self::facts::HostFacts;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Weight {
    /// No problem.
    Ok,
    /// Unknown, or worth knowing.
    Note,
    /// The host serves, but not as well as it could, or not for ever.
    Warning,
    /// The host does not serve, or stops serving at the next restart.
    Error,
}

/// Outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFinding {
    /// Name of the check.
    pub check: &'static str,
    /// Severity of the finding.
    pub severity: Weight,
    /// Actual state.
    pub found: String,
    /// Expected state.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// Command that fixes it, or advice.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// True if `--fix` fixes it.
    pub fixable: bool,
    /// Changes that fix it.
    #[serde(skip)]
    pub fixes: Vec<HostFix>,
}

/// Change that is safe to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostFix {
    /// Create a directory with mode 0700.
    CreateDirectory {
        /// Path of the directory.
        path: PathBuf,
        /// User who will own it.
        owner: u32,
    },
    /// Restrict the mode.
    SetMode {
        /// Path of a file or directory.
        path: PathBuf,
        /// New mode.
        mode: u32,
    },
    /// Load the package's sysctl file.
    LoadSysctl(PathBuf),
}

impl HostFinding {
    fn new(check: &'static str, severity: Weight, found: impl Into<String>) -> Self {
        Self {
            check,
            severity,
            found: found.into(),
            expected: String::new(),
            remedy: String::new(),
            fixable: false,
            fixes: Vec::new(),
        }
    }

    fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = expected.into();
        self
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    fn fixes(mut self, fixes: Vec<HostFix>) -> Self {
        self.fixable = !fixes.is_empty();
        self.fixes = fixes;
        self
    }
}

/// Returns the findings of all checks, in their order. Pure.
pub fn findings(facts: &HostFacts) -> Vec<HostFinding> {
    checks::all(facts)
}
