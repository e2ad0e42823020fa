//! Problems of a source: values that the CLI prints and the report carries.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use sesame_gateway_api::world::ObjectKey;

/// Something wrong in a file, with its place. Never quotes a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// File, relative to the directory; empty for the directory itself.
    pub file: String,
    /// Line in the file, from 1, if the problem has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Object, if its kind and name could be read.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub object: Option<ObjectKey>,
    /// Severity of the problem.
    pub severity: Severity,
    /// Description of the problem, and of what was done about it.
    pub message: String,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something that was asked for is not served.
    Error,
    /// Something has no effect.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            object,
            severity,
            message,
        } = self;
        f.write_str(if file.is_empty() { "." } else { file })?;
        if let Some(line) = line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {severity}: ")?;
        if let Some(ObjectKey { kind, name }) = object {
            write!(f, "{kind} {name}: ")?;
        }
        f.write_str(message)
    }
}

#[allow(clippy::ref_option, reason = "serde passes the field by reference")]
fn as_text<S: Serializer>(object: &Option<ObjectKey>, serializer: S) -> Result<S::Ok, S::Error> {
    match object {
        Some(object) => serializer.collect_str(object),
        None => serializer.serialize_none(),
    }
}
