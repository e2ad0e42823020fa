//! `AccessPolicy`: conditions on the requests of Gateways, ListenerSets and routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AccessAction, AddressSource, Object, PathMatchType, PolicyTargetRef};

/// `AccessPolicy` v1alpha1.
pub type AccessPolicy = Object<AccessPolicySpec>;

/// Conditions on requests. A request must pass all policies above and at its rule, so a policy
/// makes access narrower, and never wider. If a policy is invalid, its targets answer all requests
/// with 500.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicySpec {
    /// Gateways, ListenerSets, HTTPRoutes and GRPCRoutes in the policy's own namespace. A section
    /// names a listener or a rule.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<PolicyTargetRef>,
    /// Addresses of clients. Requests of others are answered with 403.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_filter: Option<IpFilter>,
    /// Tokens of users. Requests without a valid token are answered with 401.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt: Option<JwtPolicy>,
    /// Rules for requests that passed the other parts. Refused requests are answered with 403.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<AccessRules>,
    /// Objects whose requests need not pass this policy. Only for policies of Gateways and
    /// ListenerSets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub exemptions: Vec<AccessExemption>,
}

/// Object whose requests need not pass a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessExemption {
    /// `HTTPRoute`, `GRPCRoute`, `HTTPProxy` or `Ingress`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace. The default is the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Addresses of clients that may send requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpFilter {
    /// Networks that may, such as `192.0.2.0/24`. The default is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 49)))]
    pub allow: Vec<String>,
    /// Networks that may not, even if they are allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 49)))]
    pub deny: Vec<String>,
    /// Address to compare. The default is `Client`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<AddressSource>,
}

/// JSON Web Tokens (RFC 7519). A request needs one by any of the providers, which must expire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwtPolicy {
    /// Issuers of tokens.
    #[schemars(length(min = 1, max = 4))]
    pub providers: Vec<JwtProvider>,
}

/// Issuer of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwtProvider {
    /// Unique name in the policy.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Value of the claim `iss`.
    #[schemars(length(min = 1, max = 253))]
    pub issuer: String,
    /// Values of the claim `aud`, of which a token needs one. The default is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub audiences: Vec<String>,
    /// Public keys.
    pub jwks: JwksSource,
    /// Places of the token. The default is the header `Authorization` with `Bearer `.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub sources: Vec<JwtSource>,
    /// Headers for the backend with values of claims. Requests of clients lose them: on all routes of
    /// the Gateway if the policy has a Gateway or ListenerSet as a target, and else on the routes of its
    /// namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub claim_headers: Vec<ClaimHeader>,
    /// True to leave headers with tokens for the backend, unless another policy removes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_token: Option<bool>,
}

/// JSON Web Key Set (RFC 7517).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwksSource {
    /// The set itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub inline: Option<String>,
    /// ConfigMap in the policy's own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<JwksConfigMap>,
}

/// ConfigMap with a JSON Web Key Set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwksConfigMap {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in its data. The default is `jwks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// Place of a token in a request: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwtSource {
    /// Header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<JwtHeader>,
    /// Parameter of the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub query_parameter: Option<String>,
    /// Cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cookie: Option<String>,
}

/// Header with a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwtHeader {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Text before the token, such as `Bearer `.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub prefix: Option<String>,
}

/// Header for the backend with the value of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimHeader {
    /// Claim; dots lead into objects, as in `realm_access.roles`.
    #[schemars(length(min = 1, max = 253))]
    pub claim: String,
    /// Header, which must begin with `x-`.
    #[schemars(length(min = 3, max = 253))]
    pub header: String,
}

/// Rules, of which the first that matches a request decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessRules {
    /// Rules in their order.
    #[schemars(length(min = 1, max = 16))]
    pub rules: Vec<AccessRule>,
    /// Action on requests that no rule matches. The default is `Deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_action: Option<AccessAction>,
}

/// Condition on a request, and the action if all its parts hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessRule {
    /// Action.
    pub action: AccessAction,
    /// Claims of the policy's own tokens. All must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub claims: Vec<ClaimValues>,
    /// Methods, any of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 64)))]
    pub methods: Vec<String>,
    /// Paths, any of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub paths: Vec<AccessPath>,
    /// Headers. All must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub headers: Vec<AccessHeader>,
    /// Networks of clients, any of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 49)))]
    pub clients: Vec<String>,
}

/// Claim with any of these values. A list holds if any of its texts does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimValues {
    /// Claim; dots lead into objects, as in `realm_access.roles`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Values.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))]
    pub values: Vec<String>,
}

/// Path of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessPath {
    /// `Exact` or `PathPrefix`, which also holds for paths below. The default is `PathPrefix`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<PathMatchType>,
    /// Path.
    #[schemars(length(min = 1, max = 1024))]
    pub value: String,
}

/// Header with any of these values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessHeader {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Values.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))]
    pub values: Vec<String>,
}
