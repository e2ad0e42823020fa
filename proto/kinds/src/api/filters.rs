//! Filters of `HTTPRoute` and `GRPCRoute` rules and backends.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{BackendRef, FilterType, ObjectRef, PathModifierType};

/// `HTTPRouteFilter` and `GRPCRouteFilter`. Members are boxed because only one is set, and unboxed
/// members would take a kilobyte.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    /// Type of the filter, which determines the member below that must be set.
    #[serde(rename = "type")]
    pub type_: FilterType,
    /// Settings for type `RequestHeaderModifier`.
    pub request_header_modifier: Option<Box<HeaderModifier>>,
    /// Settings for type `ResponseHeaderModifier`.
    pub response_header_modifier: Option<Box<HeaderModifier>>,
    /// Settings for type `RequestMirror`.
    pub request_mirror: Option<Box<RequestMirror>>,
    /// Settings for type `RequestRedirect`.
    pub request_redirect: Option<Box<RequestRedirect>>,
    /// Settings for type `URLRewrite`.
    pub url_rewrite: Option<Box<UrlRewrite>>,
    /// Settings for type `CORS`.
    pub cors: Option<Box<Cors>>,
    /// Settings for type `ExternalAuth`.
    pub external_auth: Option<Box<ExternalAuth>>,
    /// The referenced object for type `ExtensionRef`.
    pub extension_ref: Option<Box<ObjectRef>>,
}

/// `HTTPHeaderFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HeaderModifier {
    /// Headers to set; existing values are replaced.
    pub set: Vec<Header>,
    /// Headers to add; existing values are kept.
    pub add: Vec<Header>,
    /// Headers to remove.
    pub remove: Vec<String>,
}

/// `HTTPHeader`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Header {
    /// Case-insensitive name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// The value.
    #[schemars(length(min = 1, max = 4096))]
    pub value: String,
}

/// `HTTPPathModifier`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathModifier {
    /// Type of the modifier, which determines the member below that must be set.
    #[serde(rename = "type")]
    pub type_: PathModifierType,
    /// The new path for type `ReplaceFullPath`.
    pub replace_full_path: Option<String>,
    /// Replacement of the matched prefix for type `ReplacePrefixMatch`.
    pub replace_prefix_match: Option<String>,
}

/// `HTTPRequestRedirectFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RequestRedirect {
    /// Target scheme. Defaults to the request's scheme.
    pub scheme: Option<String>,
    /// Target host. Defaults to the request's host.
    pub hostname: Option<String>,
    /// Target path. Defaults to the request's path.
    pub path: Option<PathModifier>,
    /// Target port. Defaults to the well-known port of `scheme` or, if that is unset, to the
    /// listener's port.
    pub port: Option<i32>,
    /// HTTP status of the response. Defaults to 302.
    pub status_code: Option<i32>,
}

/// `HTTPURLRewriteFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UrlRewrite {
    /// The new host.
    pub hostname: Option<String>,
    /// The new path.
    pub path: Option<PathModifier>,
}

/// `HTTPRequestMirrorFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestMirror {
    /// The backend that receives copies of requests.
    pub backend_ref: BackendRef,
    /// Percentage of requests to copy. Cannot be combined with `fraction`.
    pub percent: Option<i32>,
    /// Fraction of requests to copy. Cannot be combined with `percent`.
    pub fraction: Option<Fraction>,
}

/// `Fraction`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fraction {
    /// The numerator; at most `denominator`.
    #[schemars(range(min = 0))]
    pub numerator: i32,
    /// The denominator; 100 by default.
    #[schemars(range(min = 1))]
    pub denominator: Option<i32>,
}

/// `HTTPCORSFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Cors {
    /// Allowed origins. A `*` in a host matches one or more labels.
    pub allow_origins: Vec<String>,
    /// True if requests may include credentials.
    pub allow_credentials: Option<bool>,
    /// Allowed methods, or `*`.
    pub allow_methods: Vec<String>,
    /// Allowed request headers, or `*`.
    pub allow_headers: Vec<String>,
    /// Response headers that scripts may read, or `*`.
    pub expose_headers: Vec<String>,
    /// How long browsers may cache preflight responses, in seconds. Defaults to 5.
    pub max_age: Option<i32>,
}

/// `HTTPExternalAuthFilter` (experimental).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalAuth {
    /// Protocol of the authorization service: HTTP or GRPC.
    pub protocol: String,
    /// The authorization service.
    pub backend_ref: BackendRef,
    /// Settings for protocol GRPC.
    pub grpc: Option<ExternalAuthGrpc>,
    /// Settings for protocol HTTP.
    pub http: Option<ExternalAuthHttp>,
    /// How much of the request body to forward.
    pub forward_body: Option<ForwardBody>,
}

/// `GRPCAuthConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalAuthGrpc {
    /// Request headers to send to the service.
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub allowed_headers: Vec<String>,
}

/// `HTTPAuthConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalAuthHttp {
    /// Path prefix for requests to the service.
    #[schemars(length(max = 1024))]
    pub path: String,
    /// Request headers to send to the service.
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub allowed_headers: Vec<String>,
    /// Headers to copy from the service's response into the request.
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub allowed_response_headers: Vec<String>,
}

/// `ForwardBodyConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ForwardBody {
    /// Maximum number of bytes to forward.
    #[schemars(range(min = 0, max = 65_535))]
    pub max_size: i32,
}
