//! Object metadata, names and selectors.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::{Labels, UnknownFields};

/// API group of the Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// API group of HTTPProxy, TLSCertificateDelegation and ExtensionService.
pub const CONTOUR_GROUP: &str = "projectcontour.io";

/// API group of Ingress and IngressClass.
pub const INGRESS_GROUP: &str = "networking.k8s.io";

/// The parts of `metadata` that resolution reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`; empty for cluster-scoped objects.
    pub namespace: String,
    /// `metadata.uid`; empty if no cluster assigned one.
    pub uid: Box<str>,
    /// `metadata.generation`; 0 for objects from files.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub creation_timestamp: Option<Timestamp>,
    /// True if `metadata.deletionTimestamp` is set.
    #[serde(rename = "deletionTimestamp", deserialize_with = "is_set")]
    pub is_deleted: bool,
    /// `metadata.labels`.
    pub labels: Labels,
    /// Unknown fields of the object. Recorded only for fully modeled kinds.
    #[serde(skip)]
    pub unknown: UnknownFields,
    /// The entries in `metadata.annotations` that Sesame uses.
    #[serde(deserialize_with = "super::labels::own_annotations")]
    pub annotations: Labels,
}

/// Returns true if the timestamp is set.
fn is_set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::<Timestamp>::deserialize(deserializer).map(|time| time.is_some())
}

impl Metadata {
    /// Returns the namespace and the name.
    pub fn key(&self) -> NamespacedName {
        NamespacedName::new(&self.namespace, &self.name)
    }

    /// Orders competing objects as the Gateway API specifies: by creation time, oldest first, then
    /// by the string `{namespace}/{name}`. Objects without a creation time count as oldest.
    pub fn by_age(&self, other: &Self) -> Ordering {
        let created = self.creation_timestamp.cmp(&other.creation_timestamp);
        created.then_with(|| {
            if self.namespace == other.namespace {
                self.name.cmp(&other.name)
            } else {
                // Compare the joined strings: if the namespaces were compared first, `a` would
                // precede `a-b`, although `-` sorts before `/`.
                self.text().cmp(other.text())
            }
        })
    }

    fn text(&self) -> impl Iterator<Item = u8> {
        let name = std::iter::once(b'/').chain(self.name.bytes());
        self.namespace.bytes().chain(name)
    }
}

/// A namespace and a name. Displayed as `namespace/name`, or just as the name for cluster-scoped
/// objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl NamespacedName {
    /// Copies both strings.
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

/// Any object with `metadata` and `spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Object<S> {
    /// `metadata`.
    pub metadata: Metadata,
    /// `spec`.
    pub spec: S,
}

/// `metav1.LabelSelector`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that an object must have.
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must all match.
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// Requirement of a label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct LabelSelectorRequirement {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values for `In` and `NotIn`.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub values: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_orders_by_time_then_by_both_names() {
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
            assert!(pair[0].by_age(&pair[1]).is_lt(), "{pair:?}");
        }
    }
}
