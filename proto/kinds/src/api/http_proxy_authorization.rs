//! External authorization in an `HTTPProxy`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// `AuthorizationServer`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyAuthorization {
    /// The ExtensionService that authorizes requests.
    pub extension_ref: ProxyExtensionRef,
    /// Protocol of the service: `grpc` (the default, `envoy.service.auth.v3`) or `http`.
    pub service_type: String,
    /// Settings for `serviceType: http`.
    pub http_settings: Option<ProxyAuthorizationHttp>,
    /// Default for routes without `authPolicy`. Its `context` applies to all routes.
    pub auth_policy: Option<ProxyAuthPolicy>,
    /// Timeout per check, at most one hour. If empty, the ExtensionService's `response` timeout
    /// applies.
    pub response_timeout: String,
    /// If true, requests pass if the service cannot be reached or answers with 5xx; otherwise, they
    /// get 503.
    pub fail_open: bool,
    /// Sends request bodies to the service.
    pub with_request_body: Option<ProxyAuthorizationBody>,
}

/// `ExtensionServiceReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyExtensionRef {
    /// `projectcontour.io/v1alpha1`, the default.
    pub api_version: String,
    /// Namespace; defaults to the HTTPProxy's. Another namespace needs a ReferenceGrant from
    /// `HTTPProxy` to `ExtensionService`.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// `HTTPAuthorizationServerSettings`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyAuthorizationHttp {
    /// Prefix to add to the request's path in requests to the service.
    pub path_prefix: String,
    /// Request headers that the service receives besides Host, Content-Length and Authorization.
    pub allowed_authorization_headers: Vec<ProxyAllowedHeader>,
    /// Headers of the service's response that the backend receives. They are removed from the
    /// client's request, unless the service receives them. If empty, the backend receives none.
    pub allowed_upstream_headers: Vec<ProxyAllowedHeader>,
}

/// `HTTPAuthorizationServerAllowedHeaders`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyAllowedHeader {
    /// Name of the header.
    pub exact: String,
    /// Not supported. Routes with authorization respond with an error.
    pub prefix: String,
    /// Not supported. Routes with authorization respond with an error.
    pub suffix: String,
    /// Not supported. Routes with authorization respond with an error.
    pub contains: String,
    /// Has no effect, because names always match in any case.
    pub ignore_case: bool,
}

/// `AuthorizationPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyAuthPolicy {
    /// If true, disables authorization. Redirects and direct responses still require it.
    pub disabled: bool,
    /// Values that the service receives with each check, for `grpc`. A route's values replace the
    /// virtual host's values of the same name.
    pub context: BTreeMap<String, String>,
}

/// `AuthorizationServerBufferSettings`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyAuthorizationBody {
    /// Maximum size of a body, 1 to 1,048,576; 1,024 if unset. Longer bodies get 413.
    pub max_request_bytes: Option<i64>,
    /// If true, sends the start of longer bodies instead.
    pub allow_partial_message: bool,
    /// If true, sends bodies to a `grpc` service as bytes instead of text.
    pub pack_as_bytes: bool,
}
