//! A status as the cluster has it.

use serde_json::Value;

use crate::watch::Incoming;
use sesame_gateway_api::world::Kind;

/// The status of one object, as text: most are never looked at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// `metadata.resourceVersion`.
    pub(crate) version: Box<str>,
    /// `metadata.generation`.
    pub(super) generation: i64,
    /// The `apiVersion` that it was read in.
    pub(crate) api_version: Box<str>,
    /// JSON.
    status: Box<str>,
}

impl Stored {
    /// Whether we write statuses of this kind.
    pub(crate) fn is_of(kind: Kind) -> bool {
        match kind {
            Kind::GatewayClass
            | Kind::Gateway
            | Kind::ListenerSet
            | Kind::HttpRoute
            | Kind::GrpcRoute
            | Kind::TlsRoute
            | Kind::TcpRoute
            | Kind::UdpRoute
            | Kind::BackendTlsPolicy => true,
            Kind::ReferenceGrant
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::Namespace => false,
        }
    }

    /// The status of an object that arrived.
    pub(crate) fn of(kind: Kind, api_version: &str, incoming: &Incoming) -> Option<Self> {
        Self::is_of(kind).then(|| Self {
            version: incoming.version().into(),
            generation: incoming
                .value
                .pointer("/metadata/generation")
                .and_then(Value::as_i64)
                .unwrap_or(0),
            api_version: api_version.into(),
            status: incoming
                .value
                .get("status")
                .map(Value::to_string)
                .unwrap_or_default()
                .into(),
        })
    }

    /// The version as a number, which grows.
    pub(super) fn number(&self) -> u64 {
        self.version.parse().unwrap_or(0)
    }

    /// The status; null if there is none.
    pub(super) fn status(&self) -> Value {
        serde_json::from_str(&self.status).unwrap_or_default()
    }
}
