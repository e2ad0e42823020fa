//! Records unknown fields while an object is read.

use std::cell::RefCell;

use super::at::{At, Down};
use super::protecting;
use super::similar;
use super::tree::Entry;
use crate::api::UnknownField;

/// Findings recorded while an object is decoded.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Top-level fields that are not recorded as unknown although the object's type lacks them.
    pub(super) beside: &'static [&'static str],
    /// True if unknown fields are recorded, which requires that all fields of the kind are modeled.
    pub(super) is_modelled: bool,
    pub(super) unknown: RefCell<Unknown>,
    /// The types read so far, with the fields that they know and the fields that are present.
    #[cfg(test)]
    pub(super) types: RefCell<Vec<TypeRead>>,
}

/// One type that was read.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct TypeRead {
    pub(super) name: &'static str,
    pub(super) fields: &'static [&'static str],
    pub(super) there: Vec<String>,
}

/// The unknown fields of one object, each with its line.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    pub(super) fields: Vec<(u32, UnknownField)>,
    /// Number of harmless fields beyond the limit, and number of fields beyond the limit that might
    /// be security-relevant.
    pub(super) more: (usize, usize),
}

/// Maximum number of harmless fields to record. Without a limit, a hostile document could flood the
/// report.
const MAX_UNKNOWN: usize = 32;
/// Maximum number of possibly security-relevant fields to record. A part of the object that
/// contains such a field must not be served, so the limit is higher than what occurs in practice.
const MAX_PROTECTING: usize = 128;

impl Notes {
    /// Records an unknown field, unless this part of the object is not modeled.
    pub(super) fn note(&self, of: &At<'_>, entry: &Entry, known: &'static [&'static str]) {
        let within = At {
            parent: Some(of),
            step: Down::Field(&entry.key),
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
