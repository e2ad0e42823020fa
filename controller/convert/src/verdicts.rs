//! The verdicts on the fields of input objects.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use serde::Serialize;

/// What became of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "verdict")]
pub(crate) enum FieldVerdict {
    /// The output has the same setting.
    Carried {
        /// Kind and field in the output.
        to: String,
    },
    /// The output has a similar setting.
    Differs {
        /// Kind and field in the output.
        to: String,
        /// The difference, as a sentence.
        difference: String,
    },
    /// Sesame does not need the setting.
    NotNeeded {
        /// Why.
        reason: String,
    },
    /// The output lacks the setting.
    Refused(RefusedField),
}

/// Why a field was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RefusedField {
    /// Why.
    pub(crate) reason: String,
    /// What to do.
    pub(crate) remedy: String,
    /// True if the field might protect something, so its targets are not converted without it.
    pub(crate) protects: bool,
    /// True if the caller accepted the loss of this field.
    pub(crate) accepted: bool,
}

impl FieldVerdict {
    /// Returns the verdict on a field that cannot be converted.
    pub(super) fn refused(reason: &str, remedy: &str, protects: bool) -> Self {
        Self::Refused(RefusedField {
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
            protects,
            accepted: false,
        })
    }

    /// Returns the word for the verdict.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Carried { .. } => "carried",
            Self::Differs { .. } => "carried with a difference",
            Self::NotNeeded { .. } => "not needed",
            Self::Refused(RefusedField { accepted: true, .. }) => "refused, accepted",
            Self::Refused(RefusedField { protects: true, .. }) => "refused protection",
            Self::Refused(_) => "refused",
        }
    }

    /// Returns true if this verdict stops the output of the object's targets.
    pub(crate) fn stops(&self) -> bool {
        matches!(self, Self::Refused(it) if it.protects && !it.accepted)
    }
}

impl fmt::Display for FieldVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Carried { to } => f.write_str(to),
            Self::Differs { to, difference } if to.is_empty() => f.write_str(difference),
            Self::Differs { to, difference } => write!(f, "{to}: {difference}"),
            Self::NotNeeded { reason } => f.write_str(reason),
            Self::Refused(RefusedField { reason, remedy, .. }) => {
                write!(f, "{reason}; {remedy}")
            }
        }
    }
}

/// A field and its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FieldRow {
    /// Path of the field.
    #[serde(rename = "field")]
    pub(crate) path: String,
    #[serde(flatten)]
    pub(crate) verdict: FieldVerdict,
}

impl FieldRow {
    /// Returns the name that accepts the loss of the field: its path without `spec.` and indices,
    /// or an annotation's name without its prefix.
    pub(crate) fn accepted_as(&self) -> String {
        if let Some(key) = self.path.strip_prefix("metadata.annotations.") {
            return key.rsplit('/').next().unwrap_or(key).to_owned();
        }
        let path = self.path.strip_prefix("spec.").unwrap_or(&self.path);
        let mut name = String::with_capacity(path.len());
        let mut in_index = false;
        for character in path.chars() {
            match character {
                '[' => in_index = true,
                ']' => in_index = false,
                _ if !in_index => name.push(character),
                _ => {}
            }
        }
        name
    }
}

/// Collects the verdicts on one object. Clones share the same list.
#[derive(Clone, Debug, Default)]
pub(super) struct VerdictLog(Rc<RefCell<Vec<FieldRow>>>);

impl VerdictLog {
    pub(super) fn record(&self, path: &str, verdict: FieldVerdict) {
        let path = path.to_owned();
        self.0.borrow_mut().push(FieldRow { path, verdict });
    }

    /// Refuses a field that might protect something.
    pub(super) fn refuse(&self, path: &str, reason: &str, remedy: &str) {
        self.record(path, FieldVerdict::refused(reason, remedy, true));
    }

    /// Keeps the first of equal verdicts.
    pub(super) fn remove_duplicates(&self) {
        let mut seen = BTreeSet::new();
        let mut rows = self.0.take();
        rows.retain(|row| seen.insert(format!("{row:?}")));
        self.0.replace(rows);
    }

    pub(super) fn take(&self) -> Vec<FieldRow> {
        self.0.take()
    }
}

/// Losses that the caller accepts.
#[derive(Debug, Default)]
pub(super) struct AcceptedLosses {
    names: BTreeSet<String>,
    used: BTreeSet<String>,
}

impl AcceptedLosses {
    pub(super) fn new(names: &[String]) -> Self {
        Self {
            names: names.iter().cloned().collect(),
            used: BTreeSet::new(),
        }
    }

    /// Marks the refused fields of an object whose loss is accepted.
    pub(super) fn mark(&mut self, object: &str, rows: &mut [FieldRow]) {
        for row in rows {
            let name = row.accepted_as();
            let FieldVerdict::Refused(refused) = &mut row.verdict else {
                continue;
            };
            let exact = format!("{object}:{name}");
            for name in [object, &name, &exact] {
                if self.names.contains(name) {
                    refused.accepted = true;
                    self.used.insert(name.to_owned());
                }
            }
        }
    }

    /// Returns the names that matched no refused field.
    pub(super) fn unused(&self) -> Vec<String> {
        self.names.difference(&self.used).cloned().collect()
    }
}
