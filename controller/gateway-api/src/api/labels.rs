//! Labels: a compact map. A B-tree takes half a kilobyte for its first label, and a cluster has as
//! many labelled objects as endpoints.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Labels by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// Returns the value of the label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self
            .0
            .binary_search_by(|(label, _)| label.as_ref().cmp(key))
            .ok()?;
        self.0.get(at).map(|(_, value)| value.as_ref())
    }

    /// Returns all labels by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(labels: T) -> Self {
        // The tree sorts them and keeps the last value of a key.
        let ordered: BTreeMap<Box<str>, Box<str>> = labels
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        Self(ordered.into_iter().collect())
    }
}

/// Reads only Sesame's own annotations; others may be as large as the object itself.
pub(super) fn own_annotations<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Labels, D::Error> {
    let all = Option::<BTreeMap<Cow<'de, str>, Cow<'de, str>>>::deserialize(deserializer)?;
    let own = all
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with("projectsesame.io/"));
    Ok(own
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect())
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let labels = BTreeMap::<String, String>::deserialize(deserializer)?;
        Ok(labels.into_iter().collect())
    }
}
