//! Checks whether a host is fit to serve, and fixes problems that are safe to fix.
//!
//! `gather` collects facts, at the edge; `checks` derives findings (pure); `fix` executes remedies
//! that change only Sesame's own files.

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

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Weight {
    /// It is as it should be.
    Ok,
    /// Unknown, or worth knowing.
    Note,
    /// It serves, but not as well as it could, or not for ever.
    Warning,
    /// It does not serve, or stops serving when something is restarted.
    Error,
}

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFinding {
    /// Name of the check.
    pub check: &'static str,
    /// Weight of the finding.
    pub severity: Weight,
    /// State that was found.
    pub found: String,
    /// State that was expected instead.
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

/// A change that is safe to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostFix {
    /// Make a directory of mode 0700 for this user.
    CreateDirectory {
        /// Path of the directory.
        path: PathBuf,
        /// User that it is for.
        owner: u32,
    },
    /// Take permissions from others.
    SetMode {
        /// Path of a file or directory.
        path: PathBuf,
        /// Its mode from then on.
        mode: u32,
    },
    /// Load the sysctl file of the package.
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

/// Returns the findings of every check, in the order of the checks. Pure.
pub fn findings(facts: &HostFacts) -> Vec<HostFinding> {
    checks::all(facts)
}
