//! An object's status as stored in the cluster.

use serde_json::Value;

use super::{OtherWriter, OwnStatus, Received};
use sesame_kinds::world::Kind;

/// Returns true for kinds with statuses that other controllers may also write, with the same fields.
pub(crate) fn is_layered(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Ingress | Kind::HttpProxy | Kind::ExtensionService
    )
}

/// Keeps the status as a string, because most statuses are never parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredStatus {
    pub(crate) version: Box<str>,
    pub(crate) generation: i64,
    pub(crate) api_version: Box<str>,
    /// Set only for Contour's kinds, whose `Valid` Contour may also write.
    pub(crate) other_writer: Option<Box<OtherWriter>>,
    /// Set only for layered kinds, because other controllers may write their statuses.
    pub(crate) own: OwnStatus,
    /// Empty if the object has no status.
    status: Box<str>,
}

impl StoredStatus {
    pub(crate) fn applies_to(kind: Kind) -> bool {
        let without = matches!(
            kind,
            Kind::ReferenceGrant | Kind::RouteFilter | Kind::SesameConfiguration
        );
        let has_definition = kind.is_gateway_api() || kind.is_own() || kind.is_experimental();
        has_definition && !without || is_layered(kind)
    }

    /// Returns `None` if the controller does not write statuses for its kind. `own_name` is the
    /// controller's field manager.
    pub(crate) fn of(
        kind: Kind,
        api_version: &str,
        received: &Received,
        own_name: &str,
    ) -> Option<Self> {
        let value = received.value();
        let generation = &value["metadata"]["generation"];
        let status = value.get("status").map(Value::to_string);
        let managed = received.kept.managed.as_ref();
        let managed = managed.filter(|_| is_layered(kind));
        let other = managed.filter(|_| kind.is_contour());
        let other = other.and_then(|managed| OtherWriter::of_valid(managed, own_name));
        let own = managed.map(|managed| OwnStatus::of(managed, own_name));
        Self::applies_to(kind).then(|| Self {
            version: received.version().into(),
            generation: generation.as_i64().unwrap_or(0),
            api_version: api_version.into(),
            other_writer: other.map(Box::new),
            own: own.unwrap_or_default(),
            status: status.unwrap_or_default().into(),
        })
    }

    /// Increases with every write.
    pub(crate) fn number(&self) -> u64 {
        self.version.parse().unwrap_or(0)
    }

    /// Returns null if the object has no status.
    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.status).unwrap_or_default()
    }
}
