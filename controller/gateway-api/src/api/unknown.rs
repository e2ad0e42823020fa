//! The unknown fields of an object.
//!
//! Unknown fields come from newer API releases and from typos. They have no effect, so users must
//! be told. If an unknown field might be security-relevant, Sesame does not serve the part of the
//! object that contains the field. The status reports the other unknown fields.

use std::borrow::Cow;
use std::fmt;

use super::FieldPath;

/// An unknown field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The path of the field.
    pub path: FieldPath,
    /// The known field that the author probably meant.
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

/// The unknown fields of one object. They are boxed because nearly all objects have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields(Option<Box<Found>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    fields: Vec<UnknownField>,
    /// Number of further harmless fields, which `fields` does not list.
    harmless: usize,
    /// True if further unknown fields might be security-relevant.
    protecting: bool,
}

impl UnknownFields {
    /// Creates the list. `harmless` is the number of harmless unknown fields that are not in
    /// `fields`. `protecting` is true if unknown fields that are not in `fields` might be
    /// security-relevant.
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

    /// Returns the fields in the list.
    pub fn iter(&self) -> impl Iterator<Item = &UnknownField> {
        self.0.iter().flat_map(|found| &found.fields)
    }

    /// Returns an explanation if an unknown field prevents serving the object as a whole. Fields
    /// inside elements of the list `spec.<parts>` are ignored, because each element is judged
    /// separately.
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

    /// Returns an explanation if an unknown field prevents serving this element of `spec.<parts>`.
    pub fn refusal_of(&self, parts: &str, index: usize) -> Option<String> {
        refusal(self.iter(), |field| {
            field.path.element_of(parts) == Some(index)
        })
    }

    /// Like [`Self::refusal_of`], but returns two explanations: for unknown fields inside the
    /// element's field `within`, and for other unknown fields of the element.
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

    /// Appends harmless unknown fields to the message of a condition that is True. If `of` is set,
    /// appends the fields in this element of `spec.<parts>`; otherwise, appends the fields outside
    /// all of these elements.
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
