//! Records unknown fields while an object is read.

use std::cell::RefCell;

use super::at::{At, Step};
use super::protecting;
use super::similar;
use super::tree::Entry;
use crate::api::UnknownField;

#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Known top-level fields that the type does not model.
    pub(super) beside: &'static [&'static str],
    /// Unknown fields are only recorded if the kind is fully modeled.
    pub(super) is_modelled: bool,
    pub(super) unknown: RefCell<Unknown>,
    #[cfg(test)]
    pub(super) types: RefCell<Vec<TypeRead>>,
}

#[cfg(test)]
#[derive(Debug)]
pub(super) struct TypeRead {
    pub(super) name: &'static str,
    pub(super) fields: &'static [&'static str],
    pub(super) there: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Unknown {
    pub(super) fields: Vec<(u32, UnknownField)>,
    /// Number of harmless fields, and of potentially security-relevant fields, beyond the limits.
    pub(super) more: (usize, usize),
}

/// Maximum number of reported harmless fields. Without a limit, a hostile document could flood the
/// report.
const MAX_UNKNOWN: usize = 32;
/// Maximum number of potentially security-relevant fields. Objects with more are not served at all,
/// so the limit is far above what real objects contain.
const MAX_PROTECTING: usize = 128;

impl Notes {
    /// Ignores `metadata`, and kinds that are not fully modeled.
    pub(super) fn record(&self, of: &At<'_>, entry: &Entry, known: &'static [&'static str]) {
        let within = At {
            parent: Some(of),
            step: Step::Field(&entry.key),
        };
        if !self.is_modelled || within.is_metadata() {
            return;
        }
        let (path, _) = within.path();
        let similar = similar::to(&entry.key, known);
        let protects = protecting::is_protecting(&path, similar);
        let mut unknown = self.unknown.borrow_mut();
        let Unknown { fields, more } = &mut *unknown;
        let same = fields
            .iter()
            .filter(|(_, field)| field.protects == protects);
        let (most, more) = if protects {
            (MAX_PROTECTING, &mut more.1)
        } else {
            (MAX_UNKNOWN, &mut more.0)
        };
        if same.count() < most {
            let field = UnknownField {
                path,
                similar,
                protects,
            };
            fields.push((entry.line, field));
        } else {
            *more = more.saturating_add(1);
        }
    }
}
