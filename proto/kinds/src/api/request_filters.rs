//! Sections of `TrafficPolicy` that process requests and responses.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{CompressionType, ErrorPageSource, HeaderFact};

/// Limit on request bodies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestBody {
    /// Maximum body size in bytes, optionally with suffix `Ki`, `Mi` or `Gi`; at most `1Gi`. Larger
    /// requests get 413. The gateway buffers each request until it is complete, except for
    /// upgrades.
    #[schemars(length(min = 1, max = 16), regex(pattern = "^[1-9][0-9]*(Ki|Mi|Gi)?$"))]
    pub max_size: String,
}

/// Compression of responses for clients that accept it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResponseCompression {
    /// Algorithms. If a client accepts several with equal preference, the first of them is used. An
    /// empty list disables compression.
    #[schemars(length(max = 3))]
    pub types: Vec<CompressionType>,
    /// Media types to compress. Defaults to common text types.
    #[serde(default)]
    #[schemars(length(max = 32), inner(length(min = 1, max = 128)))]
    pub content_types: Vec<String>,
    /// Minimum size of compressed responses in bytes, optionally with suffix `Ki` or `Mi`. Defaults
    /// to 30. Responses of unknown length are always compressed.
    #[schemars(length(min = 1, max = 16), regex(pattern = "^[1-9][0-9]*(Ki|Mi|Gi)?$"))]
    pub min_size: Option<String>,
}

/// Page that replaces a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorPage {
    /// Statuses of responses to replace, such as `503`; `4xx` and `5xx` match all statuses of a
    /// class.
    #[schemars(
        length(min = 1, max = 16),
        inner(regex(pattern = "^(4xx|5xx|[45][0-9][0-9])$"))
    )]
    pub codes: Vec<String>,
    /// Content.
    #[schemars(length(max = 16384))]
    pub body: String,
    /// Media type of the content. The default is `text/html`.
    #[schemars(length(min = 1, max = 256))]
    pub content_type: Option<String>,
    /// Status of the page. Defaults to the status of the replaced response.
    #[schemars(range(min = 200, max = 599))]
    pub status_code: Option<i32>,
    /// Responses to replace. The default is `Gateway`.
    pub source: Option<ErrorPageSource>,
}

/// Header modifications.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyHeaders {
    /// Request header modifications, applied before the rule's own.
    pub request: Option<PolicyHeaderChange>,
    /// Response header modifications. If the rule modifies the same header, the rule takes
    /// precedence.
    pub response: Option<PolicyHeaderChange>,
}

/// Modifications of request or response headers. Each header may be in only one list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyHeaderChange {
    /// Headers that replace existing headers of the same name.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub set: Vec<ValuedHeader>,
    /// Headers to add to existing headers of the same name.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub add: Vec<ValuedHeader>,
    /// Names of headers to remove.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)))]
    pub remove: Vec<String>,
}

/// Header whose value is a literal or a property of the request. Exactly one of `value` and
/// `valueFrom` must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuedHeader {
    /// Name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Literal value.
    #[schemars(length(min = 1, max = 4096))]
    pub value: Option<String>,
    /// Property of the request or its connection. If the property is unavailable, the header is
    /// removed.
    pub value_from: Option<HeaderFact>,
}

/// Faults to inject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectedFault {
    /// Delay before requests are forwarded.
    pub delay: Option<FaultDelay>,
    /// Response to send instead of forwarding requests.
    pub abort: Option<FaultAbort>,
}

/// Delay for a percentage of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FaultDelay {
    /// Duration.
    #[schemars(length(min = 2, max = 24))]
    pub duration: String,
    /// Percentage of requests. The default is 100.
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<i32>,
}

/// Response to a percentage of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FaultAbort {
    /// HTTP status.
    #[schemars(range(min = 200, max = 599))]
    pub status_code: i32,
    /// Percentage of requests. The default is 100.
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<i32>,
}

/// Bandwidth limit. If several policies limit a request, the lowest limit applies. All requests
/// that this policy limits share the bandwidth on each port of each gateway host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BandwidthLimit {
    /// Maximum request body bytes per second, optionally with suffix `Ki`, `Mi` or `Gi`; at least
    /// `1Ki`.
    #[schemars(length(min = 1, max = 16), regex(pattern = "^[1-9][0-9]*(Ki|Mi|Gi)?$"))]
    pub request: Option<String>,
    /// Maximum response body bytes per second, optionally with suffix `Ki`, `Mi` or `Gi`; at least
    /// `1Ki`.
    #[schemars(length(min = 1, max = 16), regex(pattern = "^[1-9][0-9]*(Ki|Mi|Gi)?$"))]
    pub response: Option<String>,
}
