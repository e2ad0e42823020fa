//! The fields of an object that this version does not know.
//!
//! They come from newer releases of the API, and from slips of the pen. Nobody may take them for having an effect: those
//! that protect refuse what they stand in, of the others its status tells.

use std::borrow::Cow;
use std::fmt;

use super::FieldPath;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// Where.
    pub path: FieldPath,
    /// The known field that was perhaps meant.
    pub similar: Option<&'static str>,
    /// Whether it may protect something: then what it stands in is not served without it.
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

/// All of one object; nearly all objects have none, and keep a pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields(Option<Box<Found>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    fields: Vec<UnknownField>,
    /// How many there are beyond these that protect nothing.
    harmless: usize,
    /// Whether there are more that protect: nobody knows where.
    protecting: bool,
}

impl UnknownFields {
    /// These, `harmless` more of which nothing follows, and perhaps more that protect.
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

    /// Those that are known by name.
    pub fn iter(&self) -> impl Iterator<Item = &UnknownField> {
        self.0.iter().flat_map(|found| &found.fields)
    }

    /// Why the object as a whole cannot be served: for what protects it, and is in no element of the list `spec.<parts>`,
    /// of which each answers for itself.
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

    /// Why an element of the list `spec.<parts>` cannot be served.
    pub fn refusal_of(&self, parts: &str, index: usize) -> Option<String> {
        refusal(self.iter(), |field| {
            field.path.element_of(parts) == Some(index)
        })
    }

    /// The same, apart for what is in the field `within` of the element and what is not.
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

    /// The message of a condition that is True, with what is unknown of the object and has no effect. Of fields in
    /// elements of `spec.<parts>` only those of element `of` count, and without one only the others.
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
