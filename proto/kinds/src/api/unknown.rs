//! The unknown fields of an object.
//!
//! Unknown fields come from newer API releases and from typos. The status reports them, because
//! they have no effect. If an unknown field might be security-relevant, Sesame does not serve the
//! part of the object that contains the field.

use std::borrow::Cow;
use std::fmt;

use super::FieldPath;

/// An unknown field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// Path of the field.
    pub path: FieldPath,
    /// The known field that the author probably meant.
    pub similar: Option<&'static str>,
    /// True if the field might be security-relevant, so the part of the object that contains it is
    /// not served.
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

/// The unknown fields of one object. Boxed because nearly all objects have no unknown fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields(Option<Box<Found>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    fields: Vec<UnknownField>,
    /// Number of harmless fields omitted from `fields`.
    harmless: usize,
    /// True if fields omitted from `fields` might be security-relevant.
    protecting: bool,
}

impl UnknownFields {
    /// Creates the list. If `fields` omits unknown fields, `harmless` is the number of omitted
    /// harmless fields, and `protecting` is true if omitted fields might be security-relevant.
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

    /// Returns an explanation if an unknown field prevents serving the whole object. Ignores fields
    /// inside elements in `spec.<parts>`, which [`Self::refusal_of`] checks.
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

    /// Like [`Self::refusal`], but ignores fields inside `spec.<section>` for all `sections`.
    pub fn refusal_outside(&self, sections: &[&str]) -> Option<String> {
        let all = self.refusal("")?;
        let is_protecting = self.0.as_deref().is_some_and(|found| found.protecting);
        let mut protecting = self.iter().filter(|field| field.protects);
        let is_outside = |field: &UnknownField| {
            let section = field.path.fields().nth(1);
            !section.is_some_and(|section| sections.contains(&section))
        };
        (is_protecting || protecting.any(is_outside)).then_some(all)
    }

    /// Returns an explanation if an unknown field prevents serving this element in `spec.<parts>`.
    pub fn refusal_of(&self, parts: &str, index: usize) -> Option<String> {
        refusal(self.iter(), |field| {
            field.path.element_of(parts) == Some(index)
        })
    }

    /// Like [`Self::refusal_of`], but explains unknown fields inside the element's field `within`
    /// separately from its other unknown fields.
    pub fn refusals_within(
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

    /// Appends harmless unknown fields to the message of a True condition. With `of`, appends only
    /// fields inside that `spec.<parts>` element; otherwise, only fields outside all elements.
    pub fn append_harmless<'m>(
        &self,
        message: &'m str,
        parts: &str,
        of: Option<usize>,
    ) -> Cow<'m, str> {
        let own = |field: &&UnknownField| !field.protects && field.path.element_of(parts) == of;
        let paths = list(self.iter().filter(own));
        let more = self.0.as_deref().map_or(0, |found| found.harmless);
        match (paths.as_str(), of, more) {
            ("", _, 0) | ("", Some(_), _) => Cow::Borrowed(message),
            (paths, None, more @ 1..) => Cow::Owned(format!(
                "{message}; ignored unknown fields: {paths} and {more} more"
            )),
            (paths, ..) => Cow::Owned(format!("{message}; ignored unknown fields: {paths}")),
        }
    }
}

fn refusal<'f>(
    fields: impl Iterator<Item = &'f UnknownField>,
    of: impl Fn(&UnknownField) -> bool,
) -> Option<String> {
    let paths = list(fields.filter(|field| field.protects && of(field)));
    (!paths.is_empty()).then(|| {
        format!(
            "unknown field {paths}: it may be security-relevant, so nothing is served without it; \
            remove it, or use a version that supports it"
        )
    })
}

fn list<'f>(fields: impl Iterator<Item = &'f UnknownField>) -> String {
    let fields: Vec<String> = fields.map(ToString::to_string).collect();
    fields.join(", ")
}
