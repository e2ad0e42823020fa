//! `RouteFilter`: rule filters that the Gateway API lacks, referenced by `extensionRef`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Object;

/// `RouteFilter` v1alpha1.
pub type RouteFilter = Object<RouteFilterSpec>;

/// Filter for rules of HTTPRoutes and GRPCRoutes in the same namespace. Exactly one field must be
/// set. GRPCRoutes support only `maintenance` and `credentialInjection`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteFilterSpec {
    /// Responds to requests instead of forwarding them. The rule must have no backends.
    pub direct_response: Option<FilterResponse>,
    /// Rewrites requests before they are forwarded. Can be combined with a URLRewrite filter that
    /// replaces a different part of the request.
    pub url_rewrite: Option<FilterRewrite>,
    /// Redirects requests to another path. The rule must have no backends.
    pub request_redirect: Option<FilterRedirect>,
    /// Responds to requests with 503, or `UNAVAILABLE` for gRPC. The rule keeps its backends, but
    /// they get no requests, except from clients in `exceptClients`.
    pub maintenance: Option<MaintenancePage>,
    /// Sets a request header to a credential that the rule's backends require. Mirrored requests
    /// also contain it.
    pub credential_injection: Option<CredentialInjection>,
    /// Translates JSON requests to gRPC, and responses back. gRPC requests are unchanged.
    #[serde(rename = "grpcJSONTranscoding")]
    pub grpc_json_transcoding: Option<GrpcJsonTranscoding>,
}

/// Response during maintenance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenancePage {
    /// Time after which clients should try again (`Retry-After`), in whole seconds.
    #[schemars(length(min = 2, max = 24))]
    pub retry_after: Option<String>,
    /// Content.
    #[schemars(length(max = 4096))]
    pub body: Option<String>,
    /// Media type of the content. The default is `text/html`.
    #[schemars(length(min = 1, max = 256))]
    pub content_type: Option<String>,
    /// Networks (CIDR) of clients whose requests are forwarded to the rule's backends.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 43)))]
    pub except_clients: Vec<String>,
}

/// Translation of JSON requests to gRPC. Methods are called at the paths of their `google.api.http`
/// options, or by POST to `/package.Service/Method` if they have none. Other requests get 404, and
/// requests with unknown query parameters get 400.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcJsonTranscoding {
    /// Definitions of the services and of all files that they import.
    pub descriptor_set: DescriptorSetRef,
    /// Full names of the services to offer, such as `shop.v1.Cart`.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    pub services: Vec<String>,
    /// Query parameters that are ignored instead of rejected.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub ignored_query_parameters: Vec<String>,
    /// JSON format of responses.
    pub print_options: Option<JsonPrintOptions>,
}

/// ConfigMap in the filter's own namespace that contains a `FileDescriptorSet`, as
/// `protoc --include_imports --descriptor_set_out` writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DescriptorSetRef {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the ConfigMap's `binaryData`. The default is `descriptors.pb`.
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// JSON format of responses. All options are false by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "as Envoy has them")]
pub struct JsonPrintOptions {
    /// Indents the JSON.
    #[serde(default)]
    pub add_whitespace: bool,
    /// Includes fields that have their default value.
    #[serde(default)]
    pub always_print_primitive_fields: bool,
    /// Writes enum values as numbers instead of names.
    #[serde(default)]
    pub always_print_enums_as_ints: bool,
    /// Uses the fields' names in the definitions instead of camel case.
    #[serde(default)]
    pub preserve_proto_field_names: bool,
}

/// Credential for backends. If it is missing or invalid, requests get 500.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialInjection {
    /// Header to set. The client's own value is removed. The default is `authorization`.
    #[schemars(length(min = 1, max = 256))]
    pub header: Option<String>,
    /// Secret that contains the header's whole value, such as `Bearer abc`.
    pub credential: InjectedSecret,
}

/// Secret of type `Opaque` in the filter's own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectedSecret {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret's `data`. The default is `credential`.
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// Response that the gateway itself sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilterResponse {
    /// HTTP status.
    #[schemars(range(min = 200, max = 599))]
    pub status_code: i32,
    /// Content.
    #[schemars(length(max = 4096))]
    pub body: Option<String>,
    /// Media type of the content. The default is `text/plain`.
    #[schemars(length(min = 1, max = 256))]
    pub content_type: Option<String>,
}

/// Parts of a request to replace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilterRewrite {
    /// Replaces the matching part of the path.
    pub regex: Option<FilterSubstitution>,
    /// Request header whose value becomes the host. If a request lacks the header, its host is
    /// kept.
    #[schemars(length(min = 1, max = 256))]
    pub host_from_header: Option<String>,
}

/// Redirect to another path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilterRedirect {
    /// Replaces the matching part of the path.
    pub regex: FilterSubstitution,
    /// Target scheme: `http` or `https`. Defaults to the request's scheme.
    #[schemars(length(max = 5))]
    pub scheme: Option<String>,
    /// Target host. Defaults to the request's host.
    #[schemars(length(min = 1, max = 253))]
    pub hostname: Option<String>,
    /// Target port. Defaults to the well-known port of `scheme` or, if that is unset, to the
    /// listener's port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// HTTP status: 301, 302, 303, 307 or 308. Defaults to 302.
    #[schemars(range(min = 301, max = 308))]
    pub status_code: Option<i32>,
}

/// Replaces the part of a path that matches a regular expression. The query is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilterSubstitution {
    /// RE2 expression that starts with `^/` or `^(/`.
    #[schemars(length(min = 3, max = 1024))]
    pub pattern: String,
    /// Replacement, in which `\1` to `\9` refer to capture groups of the pattern. It must start
    /// with `/`, or with `\1` if the pattern starts with `^(/`.
    #[schemars(length(min = 1, max = 1024))]
    pub substitution: String,
}
