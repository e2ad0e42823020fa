//! Problems with a source, for commands and reports.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A problem with a source. The text never quotes a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceProblem {
    /// File, relative to the directory, or object in the cluster. Empty if the whole source is
    /// affected.
    pub file: String,
    /// Starts at 1; 0 if the whole file is affected.
    pub line: usize,
    /// Severity of the problem.
    pub severity: Severity,
    /// `Kind/namespace/name`, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The problem and its consequence.
    pub message: String,
    /// For an unreachable match, the match that receives all its requests instead, such as
    /// `HTTPRoute/namespace/name/rules/0/matches/0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_by: Option<String>,
}

impl SourceProblem {
    /// Returns a problem that affects a whole file.
    pub fn of_file(severity: Severity, file: impl Into<String>, message: String) -> Self {
        Self {
            file: file.into(),
            line: 0,
            object: None,
            severity,
            message,
            hidden_by: None,
        }
    }

    /// Returns a resolution problem, with the location of its object if known.
    pub fn of_object(problem: &sesame_resolver::Problem, place: Option<(&Path, usize)>) -> Self {
        let (file, line) = place.map_or((String::new(), 0), |(file, line)| {
            (file.display().to_string(), line)
        });
        Self {
            file,
            line,
            object: Some(problem.object.to_string()),
            severity: Severity::Warning,
            message: problem.message.clone(),
            hidden_by: problem.hidden_by.clone(),
        }
    }
}

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Part of the configuration is not served.
    Error,
    /// A setting has no effect.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            object,
            severity,
            message,
            hidden_by: _,
        } = self;
        f.write_str(if file.is_empty() { "." } else { file })?;
        if *line > 0 {
            write!(f, ":{line}")?;
        }
        write!(f, ": {severity}: ")?;
        if let Some((kind, name)) = object.as_ref().and_then(|object| object.split_once('/')) {
            write!(f, "{kind} {name}: ")?;
        }
        f.write_str(message)
    }
}
