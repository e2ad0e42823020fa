//! The objects that names in a snapshot, and in what hosts report, are of.

use sesame_proto::provenance::{Part, Provenance};

use super::{Kind, ObjectKey};
use crate::api::NamespacedName;

impl ObjectKey {
    /// Reads `Kind/namespace/name`; none if it is not the whole of an object of a kind that Sesame reads.
    pub fn parse(text: &str) -> Option<Self> {
        let Provenance {
            kind,
            namespace,
            name,
            part: Part::Whole,
        } = Provenance::parse(text).ok()?
        else {
            return None;
        };
        let kind = *Kind::ALL.iter().find(|known| known.as_str() == kind)?;
        let name = NamespacedName::new(namespace, name);
        Some(Self { kind, name })
    }

    /// Reads `Kind/namespace/name` of an object of this kind; none if it is anything else.
    pub fn parse_as(kind: Kind, text: &str) -> Option<NamespacedName> {
        let key = Self::parse(text)?;
        (key.kind == kind).then_some(key.name)
    }
}
