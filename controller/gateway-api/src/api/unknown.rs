//! Unknown fields of an object.
//!
//! Unknown fields result from newer API releases and from typos, so users must be told that they
//! have no effect. If a field might be security-relevant, Sesame does not serve the part that
//! contains it. The status reports all other unknown fields.

use std::borrow::Cow;
use std::fmt;

use super::FieldPath;

/// An unknown field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The path of the field.
    pub path: FieldPath,
    /// The known field that was probably meant.
    pub similar: Option<&'static str>,
    /// True if the field might be security-relevant. The part that contains it is then not served.
    pub protects: bool,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.path)?;
        match self.similar {
            Some(similar) => write!(f, " (did you mean `{similar}`?)"),
            None => Ok(()),
        }
    }
}

/// The unknown fields of one object. Boxed, because nearly all objects have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields(Option<Box<Found>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    fields: Vec<UnknownField>,
    /// Number of further harmless fields.
    harmless: usize,
    /// True if further fields, whose paths were dropped, might be security-relevant.
    protecting: bool,
}

impl UnknownFields {
    /// Creates the list from `fields` and the number of further harmless ones. `protecting` is true
    /// if further fields might be security-relevant.
    pub fn new(fields: Vec<UnknownField>, harmless: usize, protecting: bool) -> Self {
        if fields.is_empty() {
            return Self::default();
        }
        Self(Some(Box::new(Found {
            fields,
            harmless,
            protecting,
        })))
    }

    /// Returns the fields that were kept.
    pub fn iter(&self) -> impl Iterator<Item = &UnknownField> {
        self.0.iter().flat_map(|found| &found.fields)
    }

    /// Returns an explanation if an unknown field prevents serving the object as a whole. Fields in
    /// elements of the list `spec.<parts>` do not count, because each element has its own verdict.
    pub fn refusal(&self, parts: &str) -> Option<String> {
        let found = self.0.as_deref()?;
        if found.protecting {
            return Some(
                "spec has too many unknown fields that may be security-relevant; remove them, or \
                use a version that supports them"
                    .to_owned(),
            );
        }
        refusal(self.iter(), |field| field.path.element_of(parts).is_none())
    }

    /// Returns an explanation if an unknown field prevents serving an element of `spec.<parts>`.
    pub fn refusal_of(&self, parts: &str, index: usize) -> Option<String> {
        refusal(self.iter(), |field| {
            field.path.element_of(parts) == Some(index)
        })
    }

    /// Like [`Self::refusal_of`], but returns separate explanations for unknown fields inside and
    /// outside the element's field `within`.
    pub fn refusals_of(
        &self,
        parts: &str,
        index: usize,
        within: &str,
    ) -> (Option<String>, Option<String>) {
        let refusal = |inside: bool| {
            refusal(self.iter(), |field| {
                let is_inside = field.path.fields().nth(2) == Some(within);
                field.path.element_of(parts) == Some(index) && is_inside == inside
            })
        };
        (refusal(true), refusal(false))
    }

    /// Appends ignored unknown fields to the message of a True condition. These are the fields in
    /// element `of` of `spec.<parts>` or, if `of` is `None`, the fields outside these elements.
    pub fn beside<'m>(&self, message: &'m str, parts: &str, of: Option<usize>) -> Cow<'m, str> {
        let own = |field: &&UnknownField| !field.protects && field.path.element_of(parts) == of;
        let told = list(self.iter().filter(own));
        let more = self.0.as_deref().map_or(0, |found| found.harmless);
        match (told.as_str(), of, more) {
            ("", _, 0) | ("", Some(_), _) => Cow::Borrowed(message),
            (told, None, more @ 1..) => Cow::Owned(format!(
                "{message}; ignored unknown fields: {told} and {more} more"
            )),
            (told, ..) => Cow::Owned(format!("{message}; ignored unknown fields: {told}")),
        }
    }
}

fn refusal<'f>(
    fields: impl Iterator<Item = &'f UnknownField>,
    of: impl Fn(&UnknownField) -> bool,
) -> Option<String> {
    let told = list(fields.filter(|field| field.protects && of(field)));
    (!told.is_empty()).then(|| {
        format!(
            "unknown field {told}: it may be security-relevant, so nothing is served without it; \
            remove it, or use a version that supports it"
        )
    })
}

fn list<'f>(fields: impl Iterator<Item = &'f UnknownField>) -> String {
    let fields: Vec<String> = fields.map(ToString::to_string).collect();
    fields.join(", ")
}
