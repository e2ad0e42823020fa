//! Filters of `HTTPRoute` and `GRPCRoute` rules and backends.

use serde::{Deserialize, Serialize};

use super::{BackendRef, FilterType, ObjectRef, PathModifierType};

/// `HTTPRouteFilter` and `GRPCRouteFilter`. Boxed: one member is set, and all would take a kilobyte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    /// The member below that is set.
    #[serde(rename = "type")]
    pub type_: FilterType,
    /// For `RequestHeaderModifier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_header_modifier: Option<Box<HeaderModifier>>,
    /// For `ResponseHeaderModifier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_header_modifier: Option<Box<HeaderModifier>>,
    /// For `RequestMirror`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_mirror: Option<Box<RequestMirror>>,
    /// For `RequestRedirect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_redirect: Option<Box<RequestRedirect>>,
    /// For `URLRewrite`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_rewrite: Option<Box<UrlRewrite>>,
    /// For CORS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cors: Option<Box<Cors>>,
    /// For `ExternalAuth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_auth: Option<Box<ExternalAuth>>,
    /// For `ExtensionRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension_ref: Option<Box<ObjectRef>>,
}

/// `HTTPHeaderFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HeaderModifier {
    /// Overwrite.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub set: Vec<Header>,
    /// Append.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub add: Vec<Header>,
    /// Remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub remove: Vec<String>,
}

/// `HTTPHeader`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Case-insensitive.
    pub name: String,
    /// The value.
    pub value: String,
}

/// `HTTPPathModifier`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathModifier {
    /// The member below that is set.
    #[serde(rename = "type")]
    pub type_: PathModifierType,
    /// For `ReplaceFullPath`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_full_path: Option<String>,
    /// For `ReplacePrefixMatch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_prefix_match: Option<String>,
}

/// `HTTPRequestRedirectFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RequestRedirect {
    /// The scheme; the request's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// The host; the request's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathModifier>,
    /// The port; that of the scheme or of the listener when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// 302 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_code: Option<i32>,
}

/// `HTTPURLRewriteFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UrlRewrite {
    /// The new host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The new path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathModifier>,
}

/// `HTTPRequestMirrorFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestMirror {
    /// The backend that gets the copy.
    pub backend_ref: BackendRef,
    /// Of a hundred requests; exclusive with `fraction`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<i32>,
    /// The share of requests; exclusive with `percent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Fraction>,
}

/// `Fraction`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fraction {
    /// Of `denominator`.
    pub numerator: i32,
    /// 100 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denominator: Option<i32>,
}

/// `HTTPCORSFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Cors {
    /// Origins; `*` inside a host is greedy to the left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub allow_origins: Vec<String>,
    /// True if credentials may be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_credentials: Option<bool>,
    /// Methods, or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub allow_methods: Vec<String>,
    /// Request headers, or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub allow_headers: Vec<String>,
    /// Response headers, or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::exact::vec")]
    pub expose_headers: Vec<String>,
    /// Seconds; 5 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<i32>,
}

/// `HTTPExternalAuthFilter` (experimental).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalAuth {
    /// HTTP or GRPC.
    pub protocol: String,
    /// The authorization service.
    pub backend_ref: BackendRef,
    /// For GRPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<ExternalAuthGrpc>,
    /// For HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<ExternalAuthHttp>,
    /// The part of the body that is sent along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_body: Option<ForwardBody>,
}

/// `GRPCAuthConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalAuthGrpc {
    /// Request headers sent to the service.
    #[serde(deserialize_with = "super::exact::vec")]
    pub allowed_headers: Vec<String>,
}

/// `HTTPAuthConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalAuthHttp {
    /// The path prefix of the service.
    pub path: String,
    /// Request headers sent to the service.
    #[serde(deserialize_with = "super::exact::vec")]
    pub allowed_headers: Vec<String>,
    /// Headers of its answer that are copied into the request.
    #[serde(deserialize_with = "super::exact::vec")]
    pub allowed_response_headers: Vec<String>,
}

/// `ForwardBodyConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ForwardBody {
    /// Bytes.
    pub max_size: i32,
}
