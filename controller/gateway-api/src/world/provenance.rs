//! Parses object names in snapshots and in host reports.

use sesame_proto::provenance::{ObjectPart, Provenance};

use super::{Kind, ObjectKey};
use crate::api::NamespacedName;

impl ObjectKey {
    /// Parses `Kind/namespace/name`. Returns `None` unless the name denotes a whole object of a
    /// supported kind.
    pub fn parse(text: &str) -> Option<Self> {
        let Provenance {
            kind,
            namespace,
            name,
            part: ObjectPart::Whole,
        } = Provenance::parse(text).ok()?
        else {
            return None;
        };
        let kind = *Kind::ALL.iter().find(|known| known.as_str() == kind)?;
        let name = NamespacedName::new(namespace, name);
        Some(Self { kind, name })
    }

    /// Parses `Kind/namespace/name`. Returns `None` unless the object has this kind.
    pub fn parse_as(kind: Kind, text: &str) -> Option<NamespacedName> {
        let key = Self::parse(text)?;
        (key.kind == kind).then_some(key.name)
    }
}
