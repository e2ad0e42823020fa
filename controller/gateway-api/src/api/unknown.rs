//! Fields of an object that this version does not know.
//!
//! They come from newer releases of the API, and from slips of the pen. An author must not believe that they have an
//! effect: those that may protect something refuse the part that they stand in, and the status names the others.

use std::borrow::Cow;
use std::fmt;

use super::FieldPath;

/// An unknown field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The path of the field.
    pub path: FieldPath,
    /// The known field that was perhaps meant.
    pub similar: Option<&'static str>,
    /// True if it may protect something; the part that it stands in is not served without it then.
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

/// The unknown fields of one object. Nearly all objects have none, and keep a pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields(Option<Box<Found>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    fields: Vec<UnknownField>,
    /// Number of further fields that protect nothing.
    harmless: usize,
    /// True if there are further fields that may protect something, at places that were not kept.
    protecting: bool,
}

impl UnknownFields {
    /// Returns these fields, with the number of further ones that protect nothing; `protecting` is true if there are further
    /// ones that may protect something.
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

    /// Returns the reason why the object as a whole cannot be served: a field that may protect it, and is in no element of
    /// the list `spec.<parts>`, of which each answers for itself.
    pub fn refusal(&self, parts: &str) -> Option<String> {
        let found = self.0.as_deref()?;
        if found.protecting {
            return Some(
                "spec has too many fields that this version does not know and that may protect something; use a \
                 version that knows them, or remove them"
                    .to_owned(),
            );
        }
        refusal(self.iter(), |field| field.path.element_of(parts).is_none())
    }

    /// Returns the reason why an element of the list `spec.<parts>` cannot be served.
    pub fn refusal_of(&self, parts: &str, index: usize) -> Option<String> {
        refusal(self.iter(), |field| {
            field.path.element_of(parts) == Some(index)
        })
    }

    /// Returns the same in two parts: for the fields in the field `within` of the element, and for the others.
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

    /// Returns the message of a condition that is True, followed by the unknown fields that have no effect. Of the elements
    /// of `spec.<parts>` only element `of` counts; without one, only the fields outside of them.
    pub fn beside<'m>(&self, message: &'m str, parts: &str, of: Option<usize>) -> Cow<'m, str> {
        let own = |field: &&UnknownField| !field.protects && field.path.element_of(parts) == of;
        let told = list(self.iter().filter(own));
        let more = self.0.as_deref().map_or(0, |found| found.harmless);
        match (told.as_str(), of, more) {
            ("", _, 0) | ("", Some(_), _) => Cow::Borrowed(message),
            (told, None, more @ 1..) => Cow::Owned(format!(
                "{message}; unknown, without effect: {told} and {more} more"
            )),
            (told, ..) => Cow::Owned(format!("{message}; unknown, without effect: {told}")),
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
            "{told}: not known to this version, and may protect something, so nothing is served without it; use a \
             version that knows it, or remove it"
        )
    })
}

fn list<'f>(fields: impl Iterator<Item = &'f UnknownField>) -> String {
    let fields: Vec<String> = fields.map(ToString::to_string).collect();
    fields.join(", ")
}
