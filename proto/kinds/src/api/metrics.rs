//! `spec.metrics` in a SesameConfiguration.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;

use super::enums::open_enum;

open_enum! {
    /// Route kind whose requests can be counted separately.
    MeasuredKind {
        Http = "HTTPRoute",
        Grpc = "GRPCRoute",
        Proxy = "HTTPProxy",
        Ingress = "Ingress",
    }
}

/// Metrics that hosts expose only if they are configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MetricsSettings {
    /// Routes that get separate request counts and durations: about 25 series per route. If several
    /// configurations set this field, only the last one applies.
    #[schemars(length(max = 32))]
    pub routes: Option<Vec<MeasuredRoute>>,
}

/// A route whose requests are counted separately.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeasuredRoute {
    /// `HTTPRoute`, `GRPCRoute`, `HTTPProxy` or `Ingress`. Requests to included HTTPProxies count
    /// for these, not for the root.
    pub kind: MeasuredKind,
    /// Namespace of the route.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// Name of the route.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
}
