//! Object metadata, names and selectors.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Labels, UnknownFields};

/// The Gateway API group.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The part of `metadata` that resolution reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `metadata.uid`, when a cluster gave one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// `metadata.generation`; 0 where no cluster counts it.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// `metadata.deletionTimestamp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// `metadata.labels`.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The fields of an object of the Gateway API that this version does not know.
    #[serde(skip)]
    pub unknown: UnknownFields,
    /// The entries of `metadata.annotations` whose names begin with `projectsesame.io/`.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[serde(deserialize_with = "super::labels::own_annotations")]
    pub annotations: Labels,
}

impl Metadata {
    /// Returns the namespace and name together.
    pub fn key(&self) -> NamespacedName {
        NamespacedName::new(&self.namespace, &self.name)
    }

    /// Returns the order of age that the specification uses wherever two objects compete: creation time first
    /// (an object without one counts as oldest), then the text `{namespace}/{name}`.
    pub fn age(&self) -> Age<'_> {
        Age(self)
    }
}

/// Compares as [`Metadata::age`] says.
#[derive(Clone, Copy, Debug)]
pub struct Age<'m>(&'m Metadata);

impl Age<'_> {
    /// Returns `namespace/name` as one text: compared part by part, `-` would not sort before `/`.
    fn text(&self) -> impl Iterator<Item = u8> + '_ {
        let Self(Metadata {
            namespace, name, ..
        }) = self;
        let slash = std::iter::once(b'/');
        namespace.bytes().chain(slash).chain(name.bytes())
    }
}

impl Ord for Age<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0
            .creation_timestamp
            .cmp(&other.0.creation_timestamp)
            .then_with(|| {
                if self.0.namespace == other.0.namespace {
                    self.0.name.cmp(&other.0.name)
                } else {
                    self.text().cmp(other.text())
                }
            })
    }
}

impl PartialOrd for Age<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Age<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Age<'_> {}

/// A namespace and a name; prints as `namespace/name`, or the name alone when cluster-scoped.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl NamespacedName {
    /// Returns both parts, copied.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// An object of most kinds: metadata and a specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Object<S> {
    /// `metadata`.
    pub metadata: Metadata,
    /// `spec`.
    pub spec: S,
}

/// `metav1.LabelSelector`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must all be equal.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must all hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One requirement of a [`LabelSelector`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSelectorRequirement {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values for `In` and `NotIn`.
    #[serde(default)]
    #[serde(deserialize_with = "super::exact::vec")]
    pub values: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_orders_by_time_and_then_by_the_text_of_both_names() {
        let object = |time: Option<&str>, namespace: &str, name: &str| Metadata {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            creation_timestamp: time.map(|time| time.parse().expect("a time")),
            ..Metadata::default()
        };
        let ordered = [
            object(None, "z", "z"),
            object(Some("2020-01-01T00:00:00Z"), "z", "z"),
            object(Some("2021-01-01T00:00:00Z"), "a-b", "x"),
            object(Some("2021-01-01T00:00:00Z"), "a", "x"),
            object(Some("2021-01-01T00:00:00Z"), "a", "x-y"),
            object(Some("2021-01-01T00:00:00Z"), "a0", "a"),
        ];
        for pair in ordered.windows(2) {
            assert!(pair[0].age() < pair[1].age(), "{pair:?}");
        }
    }
}
