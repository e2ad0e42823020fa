//! Stores the objects of one kind. A world may contain thousands of objects, so clones share memory
//! until one of them changes.

use std::slice;
use std::sync::Arc;

use crate::api::{
    ConfigMap, EndpointSlice, Metadata, Namespace, NamespacedName, Object, Pod, Secret,
};

/// An object that can be looked up by namespace and name.
pub trait Named {
    /// Returns the `metadata`.
    fn metadata(&self) -> &Metadata;
}

impl<S> Named for Object<S> {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

macro_rules! named {
    ($($type:ty),+) => {
        $(impl Named for $type {
            fn metadata(&self) -> &Metadata {
                &self.metadata
            }
        })+
    };
}

named!(ConfigMap, EndpointSlice, Namespace, Pod, Secret);

/// Objects of one kind, unique by namespace and name.
#[derive(Debug, PartialEq)]
pub struct Objects<T>(Arc<Vec<Arc<T>>>);

impl<T> Clone for Objects<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Objects<T> {
    /// Iterates in order of namespace and name.
    pub fn iter(&self) -> slice::Iter<'_, Arc<T>> {
        self.0.iter()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Named> Objects<T> {
    /// Returns the object with this namespace and name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.0.get(self.find(namespace, name).ok()?)
    }

    /// Adds or replaces an object.
    pub fn insert(&mut self, object: Arc<T>) {
        let Metadata {
            namespace, name, ..
        } = object.metadata();
        let place = self.find(namespace, name);
        let objects = Arc::make_mut(&mut self.0);
        match place {
            Ok(at) => objects[at] = object,
            Err(at) => objects.insert(at, object),
        }
    }

    /// Returns true if the object existed.
    pub fn remove(&mut self, key: &NamespacedName) -> bool {
        let place = self.find(&key.namespace, &key.name);
        if let Ok(at) = place {
            Arc::make_mut(&mut self.0).remove(at);
        }
        place.is_ok()
    }

    /// Removes the objects for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        Arc::make_mut(&mut self.0).retain(|object| keep(object));
    }

    fn find(&self, namespace: &str, name: &str) -> Result<usize, usize> {
        let order = |object: &Arc<T>| {
            let metadata = object.metadata();
            (metadata.namespace.as_str(), metadata.name.as_str()).cmp(&(namespace, name))
        };
        // Objects often arrive in order, so check the end first.
        if self.0.last().is_none_or(|last| order(last).is_lt()) {
            return Err(self.0.len());
        }
        self.0.binary_search_by(order)
    }
}

impl<'o, T> IntoIterator for &'o Objects<T> {
    type Item = &'o Arc<T>;
    type IntoIter = slice::Iter<'o, Arc<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
