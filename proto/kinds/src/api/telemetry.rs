//! `XTelemetryPolicy`, and the tracing settings that it shares with SesameConfiguration.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    AttributeSourceType, Fraction, Header, LocalPolicyTargetRef, Object, ParentSamplingMode,
    TracingMode,
};

/// `XTelemetryPolicy` v1alpha1 (experimental).
pub type XTelemetryPolicy = Object<XTelemetryPolicySpec>;

/// `TelemetryPolicySpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XTelemetryPolicySpec {
    /// Gateways in the policy's own namespace.
    pub target_refs: Vec<LocalPolicyTargetRef>,
    /// Request tracing for these Gateways.
    pub tracing: Option<TracingSettings>,
}

/// Request tracing, and the OTLP collector that receives the spans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct TracingSettings {
    /// `Enabled`, `Disabled`, or `ImplementationDefault` (the default), which leaves the choice to
    /// other settings.
    pub mode: Option<TracingMode>,
    /// Collector that receives the spans. Required if the mode is `Enabled`. In other modes,
    /// neither `provider` nor any field below may be set.
    pub provider: Option<TracingProvider>,
    /// Sampling rate for traces that the gateway starts; 1 in 100 by default.
    pub sampling_rate: Option<Fraction>,
    /// Sampling for traces that a caller started.
    pub parent_based_sampling: Option<ParentBasedSampling>,
    /// `service.name` of the spans; the Gateway's name and namespace by default, such as
    /// `edge.default`.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-zA-Z0-9_.:/-]+$"))]
    pub service_name: Option<String>,
    /// Name of each request's span.
    #[schemars(
        length(min = 1, max = 256),
        regex(pattern = r"^[a-zA-Z0-9_.:/-]+( [a-zA-Z0-9_.:/-]+)*$")
    )]
    pub span_name: Option<String>,
    /// Additional span attributes.
    #[schemars(length(max = 64))]
    pub attributes: Vec<TracingAttribute>,
}

/// Collector that receives spans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TracingProvider {
    /// The collector's Service. OTLP uses gRPC, or HTTP if the port's `appProtocol` is `http` or
    /// `https`.
    pub backend_ref: BackendObjectRef,
    /// Headers to send.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub headers: Vec<Header>,
}

/// `BackendObjectReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendObjectRef {
    /// API group; core by default.
    #[schemars(length(max = 253))]
    pub group: Option<String>,
    /// Kind; Service by default.
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace; the referring object's namespace by default. Another namespace requires a
    /// ReferenceGrant.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// The Service's port; required.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: Option<i32>,
}

/// Sampling for traces that a caller started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ParentBasedSampling {
    /// `Enabled`, the default, follows the caller's decision; `Disabled` applies
    /// `tracing.samplingRate` instead.
    pub mode: Option<ParentSamplingMode>,
    /// Sampling rate for traces that the caller records. Only the full rate is supported, because
    /// Envoy follows the caller's decision either for all traces or for none.
    pub sampling_rate: Option<Fraction>,
}

/// Span attribute.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TracingAttribute {
    /// Name of the attribute.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[a-zA-Z0-9_.:/-]+$"))]
    pub name: String,
    /// Source of the value; determines which field below to set.
    pub source_type: AttributeSourceType,
    /// For `Header`: name of the request header.
    #[schemars(length(min = 1, max = 256))]
    pub header_name: Option<String>,
    /// For `Literal`: the value.
    #[schemars(length(min = 1, max = 1024))]
    pub literal_value: Option<String>,
    /// For `Attribute`: OpenTelemetry name of a value that the proxy provides.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[a-z0-9_.-]+$"))]
    pub attribute_key: Option<String>,
}
