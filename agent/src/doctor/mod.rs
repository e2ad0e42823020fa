//! Checks whether a host is ready to serve, and suggests how to fix each problem. Never changes the
//! host.

mod checks;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub mod facts;
pub(crate) mod gather;
mod paths;
pub(crate) mod systemd;

use serde::Serialize;

use self::facts::HostFacts;

/// Severity of a finding, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FindingSeverity {
    /// No problem found.
    Ok,
    /// Unknown state, or information that is not a problem.
    Note,
    /// The host serves traffic, but is degraded or may soon fail.
    Warning,
    /// The host does not serve traffic, or will not do so after the next restart.
    Error,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFinding {
    /// Name of the check.
    pub check: &'static str,
    /// Severity of the finding.
    pub severity: FindingSeverity,
    /// Actual state.
    pub found: String,
    /// Expected state.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// How to fix the problem, usually a command.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl HostFinding {
    fn new(check: &'static str, severity: FindingSeverity, found: impl Into<String>) -> Self {
        Self {
            check,
            severity,
            found: found.into(),
            expected: String::new(),
            remedy: String::new(),
        }
    }

    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, FindingSeverity::Ok, found)
    }

    fn note(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, FindingSeverity::Note, found)
    }

    fn warning(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, FindingSeverity::Warning, found)
    }

    fn error(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, FindingSeverity::Error, found)
    }

    fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = expected.into();
        self
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

/// Runs all checks, and returns the findings in order.
pub fn findings(facts: &HostFacts) -> Vec<HostFinding> {
    checks::all(facts)
}
