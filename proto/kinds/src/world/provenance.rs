//! Parses object names in snapshots and host reports.

use sesame_proto::provenance::{ObjectPart, Provenance};

use super::{Kind, ObjectKey};
use crate::api::NamespacedName;

impl ObjectKey {
    /// Parses `Kind/namespace/name`. Returns `None` for unsupported kinds and parts of objects.
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

    /// Parses `Kind/namespace/name`. Returns `None` if the text names another kind.
    pub fn parse_as(kind: Kind, text: &str) -> Option<NamespacedName> {
        let key = Self::parse(text)?;
        (key.kind == kind).then_some(key.name)
    }
}
