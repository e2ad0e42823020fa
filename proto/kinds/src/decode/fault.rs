//! An error in a value, and the value's location.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use super::Reason;
use super::tree::{Node, Value};
use crate::api::{FieldPath, PathStep};

#[derive(Debug)]
pub(super) struct Fault(Box<Inner>);

#[derive(Debug)]
struct Inner {
    what: FaultKind,
    place: Option<Place>,
}

#[derive(Debug)]
enum FaultKind {
    Missing(&'static str),
    /// The expected type.
    Expected(String),
    /// The reason, which may quote the value.
    Invalid(String),
}

#[derive(Debug)]
struct Place {
    line: u32,
    path: FieldPath,
    /// Number of leading path steps that reveal no contents of the object.
    named: usize,
    value: String,
}

const MAX_VALUE_CHARACTERS: usize = 64;

impl Fault {
    pub(super) fn expected(expected: String) -> Self {
        Self::new(FaultKind::Expected(expected))
    }

    fn new(what: FaultKind) -> Self {
        Self(Box::new(Inner { what, place: None }))
    }

    /// Does not replace an existing location, which is more precise.
    pub(super) fn at(mut self, node: &Node, path: impl FnOnce() -> (FieldPath, usize)) -> Self {
        self.0.place.get_or_insert_with(|| {
            let (path, named) = path();
            Place {
                line: node.line,
                path,
                named,
                value: shown(node),
            }
        });
        self
    }

    /// If `secret` is true, the reason quotes no values.
    pub(super) fn into_reason(self, secret: bool) -> (Option<u32>, Reason) {
        let Inner { what, place } = *self.0;
        let Some(Place {
            line,
            mut path,
            named,
            mut value,
        }) = place
        else {
            let why = match what {
                FaultKind::Missing(field) => return (None, Reason::missing(field)),
                FaultKind::Expected(expected) => format!("expected {expected}"),
                FaultKind::Invalid(_) if secret => super::yaml::WITHHELD.to_owned(),
                FaultKind::Invalid(message) => message,
            };
            return (None, Reason::Invalid(why));
        };
        if secret {
            path = FieldPath(path.0.get(..named).unwrap_or_default().into());
            "the value (which is not shown)".clone_into(&mut value);
        }
        let why = match what {
            FaultKind::Missing(field) => {
                let mut steps = path.0.into_vec();
                steps.push(PathStep::Field(field.into()));
                let field = FieldPath(steps.into()).to_string();
                return (Some(line), Reason::Missing { field });
            }
            FaultKind::Expected(expected) => format!("is not {expected}"),
            FaultKind::Invalid(_) if secret => "is not valid".to_owned(),
            FaultKind::Invalid(message) => format!("is not valid: {message}"),
        };
        let reason = Reason::Field {
            field: path.to_string(),
            value,
            why,
        };
        (Some(line), reason)
    }
}

fn shown(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Text(text) => {
            let mut cut: String = text.chars().take(MAX_VALUE_CHARACTERS).collect();
            if cut.len() < text.len() {
                cut.push('…');
            }
            format!("{cut:?}")
        }
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omit the details because the value may come from a Secret.
        f.write_str("a value is not valid")
    }
}

impl std::error::Error for Fault {}

impl Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(FaultKind::Invalid(message.to_string()))
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expected(expected.to_string())
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expected(expected.to_string())
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::expected(format!("one of {}", expected.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(FaultKind::Missing(field))
    }
}
