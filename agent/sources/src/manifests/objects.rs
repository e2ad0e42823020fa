//! The objects in one file, and a wrapper that makes an object its own key in an index.
//!
//! A directory may contain many thousands of objects, so no index copies their names.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use sesame_kinds::world::{AnyObject, Kind, ObjectKey};

/// Comparisons consider only the kind and name.
#[derive(Clone, Debug)]
pub(super) struct KeyedObject(pub(super) AnyObject);

impl KeyedObject {
    pub(super) fn key(&self) -> ObjectKey {
        self.0.key()
    }

    fn parts(&self) -> (Kind, &str, &str) {
        let metadata = self.0.metadata();
        (self.0.kind(), &metadata.namespace, &metadata.name)
    }
}

impl Ord for KeyedObject {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for KeyedObject {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KeyedObject {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for KeyedObject {}

#[derive(Clone, Debug)]
pub(super) struct DeclaredObject {
    pub(super) object: AnyObject,
    /// Starts at 1.
    pub(super) line: usize,
}

pub(super) type Reading = BTreeMap<ObjectKey, DeclaredObject>;

/// Sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct FileObjects(Box<[(KeyedObject, usize)]>);

impl From<Reading> for FileObjects {
    fn from(reading: Reading) -> Self {
        let sorted = reading.into_values();
        Self(
            sorted
                .map(|held| (KeyedObject(held.object), held.line))
                .collect(),
        )
    }
}

impl FileObjects {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &KeyedObject> {
        self.0.iter().map(|(object, _)| object)
    }

    pub(super) fn get(&self, object: &KeyedObject) -> Option<&(KeyedObject, usize)> {
        let at = self.0.binary_search_by(|(held, _)| held.cmp(object));
        at.ok().and_then(|at| self.0.get(at))
    }

    pub(super) fn find(&self, key: &ObjectKey) -> Option<&AnyObject> {
        let wanted = (
            key.kind,
            key.name.namespace.as_str(),
            key.name.name.as_str(),
        );
        let at = self
            .0
            .binary_search_by(|(held, _)| held.parts().cmp(&wanted));
        at.ok()
            .and_then(|at| self.0.get(at))
            .map(|(held, _)| &held.0)
    }

    /// Unlike `get`, compares whole objects.
    pub(super) fn holds(&self, object: &KeyedObject) -> bool {
        self.get(object).is_some_and(|(held, _)| held.0 == object.0)
    }

    pub(super) fn at(
        &self,
        line: Option<usize>,
    ) -> impl Iterator<Item = (ObjectKey, DeclaredObject)> {
        self.0.iter().map(move |(object, own)| {
            let held = DeclaredObject {
                object: object.0.clone(),
                line: line.unwrap_or(*own),
            };
            (object.key(), held)
        })
    }
}
