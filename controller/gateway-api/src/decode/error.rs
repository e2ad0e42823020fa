//! Errors about documents that cannot be decoded.

use thiserror::Error;

use crate::world::{AnyObject, Kind, ObjectKey};

/// An error about a document, or about an item of a list, that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("line {line}: {reason}")]
pub struct DecodeError {
    /// Line within the document, 1-based.
    pub line: usize,
    /// Kind and name of the object, if both could still be read.
    pub object: Option<ObjectKey>,
    /// Why decoding failed.
    pub reason: Box<Reason>,
    /// A replacement for a security-relevant policy that cannot be decoded. It has only the
    /// policy's targets, and all requests to them are rejected. `None` for other objects, or if the
    /// targets cannot be read.
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

    /// Returns true if Sesame does not support documents of this kind. Such a document is skipped
    /// and is not an error.
    pub fn is_unsupported(&self) -> bool {
        matches!(*self.reason, Reason::Unsupported { .. })
    }
}

/// Why a document cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// The kind, or this version of the kind, is unsupported.
    #[error("{}", unsupported(api_version, kind))]
    Unsupported {
        /// The `apiVersion`, as written in the document.
        api_version: String,
        /// The `kind`, as written in the document.
        kind: String,
    },
    /// The text is not valid YAML, or does not contain an object.
    #[error("{0}")]
    Invalid(String),
    /// A field has a value that is not allowed.
    #[error("{field}: {value} {why}")]
    Field {
        /// The path of the field.
        field: String,
        /// The value, truncated. `None` if it must not be printed.
        value: String,
        /// Why the value is not allowed.
        why: String,
    },
    /// A required field is missing.
    #[error("`{field}` is missing")]
    Missing {
        /// The path of the field.
        field: String,
    },
    /// The API server would reject this name.
    #[error("{field}: {value:?} is not a name: {expected}")]
    Name {
        /// The path of the field.
        field: String,
        /// The value, truncated.
        value: String,
        /// Describes a valid name.
        expected: &'static str,
    },
    /// A part of the document exceeds a limit.
    #[error("the {what} is too large: {size} bytes, maximum {limit}; split it")]
    TooLarge {
        /// Which part of the document is too large.
        what: &'static str,
        /// The size in bytes.
        size: usize,
        /// The limit.
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
