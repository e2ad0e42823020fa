//! Errors about documents that could not be decoded.

use thiserror::Error;

use crate::world::{AnyObject, Kind, ObjectKey};

/// A document, or an item of a list, that could not be decoded.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("line {line}: {reason}")]
pub struct DecodeError {
    /// Line within the document, 1-based.
    pub line: usize,
    /// The object, if its kind and name could still be read.
    pub object: Option<ObjectKey>,
    /// The reason.
    pub reason: Box<Reason>,
    /// A stand-in for the policy: it has only the targets, which then reject all requests. Set only
    /// for security-relevant policies whose targets could be read.
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

    /// Returns true if Sesame does not read documents of this kind. That is not an error.
    pub fn is_unsupported(&self) -> bool {
        matches!(*self.reason, Reason::Unsupported { .. })
    }
}

/// The reason why a document could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// An unsupported kind, or an unsupported version of a kind.
    #[error("{}", unsupported(api_version, kind))]
    Unsupported {
        /// The `apiVersion`, as written in the document.
        api_version: String,
        /// The `kind`, as written in the document.
        kind: String,
    },
    /// The text is not YAML, or not an object.
    #[error("{0}")]
    Invalid(String),
    /// A value that its field does not allow.
    #[error("{field}: {value} {why}")]
    Field {
        /// The path of the field.
        field: String,
        /// The truncated value, if it may be printed.
        value: String,
        /// The problem with the value.
        why: String,
    },
    /// A required field is missing.
    #[error("`{field}` is missing")]
    Missing {
        /// The path of the field.
        field: String,
    },
    /// A name that an API server would reject.
    #[error("{field}: {value:?} is not a name: {expected}")]
    Name {
        /// The path of the field.
        field: String,
        /// The value, truncated.
        value: String,
        /// The format of a valid name.
        expected: &'static str,
    },
    /// A part of the document exceeds a limit.
    #[error("the {what} is too large: {size} bytes, maximum {limit}; split it")]
    TooLarge {
        /// The part that is too large.
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
