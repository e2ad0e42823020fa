//! `RouteFilter`: rule filters that the Gateway API lacks, referenced by `extensionRef`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Object;

/// `RouteFilter` v1alpha1.
pub type RouteFilter = Object<RouteFilterSpec>;

/// Filter for rules of HTTPRoutes in the same namespace. Exactly one field must be set.
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
