//! An object's status as stored in the cluster.

use serde_json::Value;

use super::{OtherWriter, Received};
use sesame_gateway_api::world::Kind;

/// Writes all statuses.
pub(crate) const FIELD_MANAGER: &str = "sesame-controller";

/// Keeps the status as a string, because most statuses are never parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredStatus {
    pub(crate) version: Box<str>,
    pub(crate) generation: i64,
    pub(crate) api_version: Box<str>,
    /// Set only for HTTPProxies, whose `Valid` Contour may also write.
    pub(crate) other_writer: Option<Box<OtherWriter>>,
    /// Empty if the object has no status.
    status: Box<str>,
}

impl StoredStatus {
    pub(crate) fn applies_to(kind: Kind) -> bool {
        let without = matches!(
            kind,
            Kind::ReferenceGrant | Kind::RouteFilter | Kind::SesameConfiguration
        );
        let layered = matches!(kind, Kind::Ingress | Kind::HttpProxy);
        let has_definition = kind.is_gateway_api() || kind.is_own() || kind.is_experimental();
        has_definition && !without || layered
    }

    /// Returns `None` if the controller does not write statuses for its kind.
    pub(crate) fn of(kind: Kind, api_version: &str, received: &Received) -> Option<Self> {
        let value = received.value();
        let generation = &value["metadata"]["generation"];
        let status = value.get("status").map(Value::to_string);
        let managed = received.kept.managed.as_ref();
        let managed = managed.filter(|_| kind == Kind::HttpProxy);
        Self::applies_to(kind).then(|| Self {
            version: received.version().into(),
            generation: generation.as_i64().unwrap_or(0),
            api_version: api_version.into(),
            other_writer: managed.and_then(OtherWriter::of_valid).map(Box::new),
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
