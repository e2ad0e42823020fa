use thiserror::Error;

use crate::world::{AnyObject, Kind, ObjectKey};

/// Why a document or list item cannot be decoded.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("line {line}: {reason}")]
pub struct DecodeError {
    /// 1-based line within the document.
    pub line: usize,
    /// Kind and name, if readable.
    pub object: Option<ObjectKey>,
    /// Why decoding failed.
    pub reason: Box<Reason>,
    /// Policy that replaces an unreadable AccessPolicy or TrafficPolicy, and rejects all requests
    /// to its targets. `None` for other kinds, or if the targets are unreadable too.
    pub stand_in: Option<Box<AnyObject>>,
}

impl DecodeError {
    pub(super) fn new(line: usize, object: Option<ObjectKey>, reason: Reason) -> Self {
        let reason = Box::new(reason);
        Self {
            line,
            object,
            reason,
            stand_in: None,
        }
    }

    /// Returns true if Sesame does not read this kind. Such documents are skipped.
    pub fn is_unsupported(&self) -> bool {
        matches!(*self.reason, Reason::Unsupported { .. })
    }
}

/// Why a document cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// The kind or its version is unsupported.
    #[error("{}", unsupported(api_version, kind))]
    Unsupported {
        /// `apiVersion` in the document.
        api_version: String,
        /// `kind` in the document.
        kind: String,
    },
    /// The text is not valid YAML, or not an object.
    #[error("{0}")]
    Invalid(String),
    /// A field has an invalid value.
    #[error("{field}: {value} {why}")]
    Field {
        /// Path of the field.
        field: String,
        /// The value, truncated; a placeholder for values in a Secret.
        value: String,
        /// Why the value is invalid.
        why: String,
    },
    /// A required field is missing.
    #[error("`{field}` is missing")]
    Missing {
        /// Path of the field.
        field: String,
    },
    /// The API server would reject this name.
    #[error("{field}: {value:?} is not a valid name: {expected}")]
    Name {
        /// Path of the field.
        field: String,
        /// The value, truncated.
        value: String,
        /// Description of a valid name.
        expected: &'static str,
    },
    /// A part of the document is too large.
    #[error("the {what} is too large: {size} bytes, maximum {limit}; split it")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Size in bytes.
        size: usize,
        /// Limit in bytes.
        limit: usize,
    },
}

impl Reason {
    pub(super) fn missing(field: &str) -> Self {
        Self::Missing {
            field: field.to_owned(),
        }
    }

    pub(super) fn too_large(what: &'static str, size: usize, limit: usize) -> Self {
        Self::TooLarge { what, size, limit }
    }
}

fn unsupported(api_version: &str, kind: &str) -> String {
    let cut = |text: &str| text.chars().take(64).collect::<String>();
    let (api_version, kind) = (cut(api_version), cut(kind));
    match Kind::ALL.iter().find(|known| known.as_str() == kind) {
        Some(known) => format!(
            "{kind} of {api_version:?} is ignored; expected {}",
            known.api_versions().join(" or ")
        ),
        None => format!("kind {kind:?} of {api_version:?} is ignored"),
    }
}
