//! `AccessPolicy`: conditions that requests and connections to Gateways, ListenerSets and routes
//! must meet.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    AccessAction, AccessCertificate, AccessMode, AddressSource, ApiKeyAuth, BackendObjectRef,
    BasicAuth, CsrfProtection, ExternalAuthGrpc, ExternalAuthHttp, ForwardBody, Object, OidcLogin,
    PathMatchType, PolicyTargetRef,
};

/// `AccessPolicy` v1alpha1.
pub type AccessPolicy = Object<AccessPolicySpec>;

/// Conditions that requests must meet. A request must pass the policies for its rule, route,
/// listener and Gateway, so a policy can only narrow access, never widen it. If a policy is
/// invalid, all requests to its targets get 500. `ipFilter` also applies to TLSRoutes, TCPRoutes
/// and UDPRoutes; if the policy is invalid, they get no traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicySpec {
    /// Gateways, ListenerSets, HTTPRoutes, GRPCRoutes, TLSRoutes, TCPRoutes and UDPRoutes in the
    /// policy's own namespace. `sectionName` selects a listener or a rule. TLSRoutes, TCPRoutes and
    /// UDPRoutes support only `ipFilter`.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<PolicyTargetRef>,
    /// `Enforce`, the default, rejects requests. `Report` rejects none, and changes no headers:
    /// access logs and metrics show which requests the policy would reject. It supports `ipFilter`,
    /// `jwt` and `authorization`, and has no effect on TLSRoutes, TCPRoutes and UDPRoutes.
    pub mode: Option<AccessMode>,
    /// Client addresses that may send requests. Requests from other addresses get 403, connections
    /// to TLSRoutes and TCPRoutes are closed, and datagrams to UDPRoutes are dropped.
    pub ip_filter: Option<IpFilter>,
    /// Rejects forged requests from other sites with 403.
    pub csrf: Option<CsrfProtection>,
    /// Users and passwords that requests must carry. Requests without them get 401.
    pub basic_auth: Option<BasicAuth>,
    /// API keys that requests must carry. Requests without a valid key get 401.
    pub api_key_auth: Option<ApiKeyAuth>,
    /// Login that users need. Requests without a session are redirected to the login, or get 401.
    /// A request can pass only one login, so if several policies require one, requests get 500.
    pub oidc: Option<OidcLogin>,
    /// JSON Web Tokens that requests must carry. Requests without a valid token get 401.
    pub jwt: Option<JwtPolicy>,
    /// Rules for requests that pass the parts above. Denied requests get 403.
    pub authorization: Option<AccessRules>,
    /// External service that authorizes requests after they pass all other parts of the policy.
    pub ext_auth: Option<ExtAuth>,
    /// Objects whose requests bypass this policy. Allowed only if all targets are Gateways or
    /// ListenerSets.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub exemptions: Vec<AccessExemption>,
}

/// Authorization service, with the same fields as HTTPRoute's `ExternalAuth` filter. If the service
/// cannot be reached, requests get 503.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtAuth {
    /// `HTTP` or `GRPC`.
    #[schemars(length(min = 1, max = 8))]
    pub protocol: String,
    /// The authorization Service. A Service in another namespace requires a ReferenceGrant.
    pub backend_ref: BackendObjectRef,
    /// Settings for `GRPC`.
    pub grpc: Option<ExternalAuthGrpc>,
    /// Settings for `HTTP`. Headers that only the service sets are removed from client requests, on
    /// the same routes as for `claimHeaders`.
    pub http: Option<ExternalAuthHttp>,
    /// The part of the request body to forward.
    pub forward_body: Option<ForwardBody>,
}

/// Object whose requests bypass a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessExemption {
    /// `HTTPRoute`, `GRPCRoute`, `TLSRoute`, `TCPRoute`, `UDPRoute`, `HTTPProxy` or `Ingress`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace; the policy's namespace by default.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Parts of the policy that the object's requests bypass: `ipFilter`, `csrf`, `basicAuth`,
    /// `apiKeyAuth`, `oidc`, `jwt`, `authorization` or `extAuth`. All parts by default.
    #[serde(default)]
    #[schemars(length(max = 8), inner(length(min = 1, max = 16)))]
    pub parts: Vec<String>,
}

/// Client addresses that may send requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpFilter {
    /// Networks whose clients may send requests, such as `192.0.2.0/24`. All networks by default.
    #[serde(default)]
    #[schemars(length(max = 128), inner(length(min = 1, max = 49)))]
    pub allow: Vec<String>,
    /// Networks whose clients may not send requests, even if `allow` contains them.
    #[serde(default)]
    #[schemars(length(max = 128), inner(length(min = 1, max = 49)))]
    pub deny: Vec<String>,
    /// Lists of networks to add to `allow`. A policy with a missing or empty list rejects all
    /// requests to its targets.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub allow_refs: Vec<NetworkList>,
    /// Lists of networks to add to `deny`.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub deny_refs: Vec<NetworkList>,
    /// Address to check. The default is `Client`.
    pub source: Option<AddressSource>,
}

/// ConfigMap in the policy's own namespace with a list of networks: one per line, with comments
/// after `#`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkList {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the ConfigMap's `data`. The default is `networks`.
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// JSON Web Tokens (RFC 7519). A request must carry a token from one of the providers. Tokens
/// without an expiry are rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwtPolicy {
    /// Token issuers.
    #[schemars(length(min = 1, max = 4))]
    pub providers: Vec<JwtProvider>,
}

/// Token issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwtProvider {
    /// Name, unique within the policy.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Required value of the `iss` claim.
    #[schemars(length(min = 1, max = 253))]
    pub issuer: String,
    /// Accepted audiences, one of which must be in the token's `aud` claim. Any audience by
    /// default.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub audiences: Vec<String>,
    /// Public keys that verify the tokens.
    pub jwks: JwksSource,
    /// Parts of a request that may carry the token. The default is the header `Authorization` with
    /// the prefix `Bearer `.
    #[serde(default)]
    #[schemars(length(max = 4))]
    pub sources: Vec<JwtSource>,
    /// Headers for the backend, set from claims. Headers with these names are removed from client
    /// requests: on all routes of the Gateway if the policy targets a Gateway or ListenerSet,
    /// otherwise on the routes in the policy's namespace.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub claim_headers: Vec<ClaimHeader>,
    /// `true` forwards the headers that contain tokens to the backend, unless another policy
    /// removes them.
    pub forward_token: Option<bool>,
}

/// JSON Web Key Set (RFC 7517).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwksSource {
    /// The key set, inline.
    #[schemars(length(min = 1, max = 65536))]
    pub inline: Option<String>,
    /// ConfigMap in the policy's own namespace that contains the key set.
    pub config_map_ref: Option<JwksConfigMap>,
    /// Key set to fetch from the issuer. If the issuer cannot be reached, the last good copy stays
    /// in use for at most seven days.
    pub remote: Option<RemoteJwks>,
}

/// JSON Web Key Set that is fetched from its issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteJwks {
    /// HTTPS URI of the key set. Redirects are not followed.
    #[schemars(length(min = 9, max = 2048))]
    pub uri: String,
    /// Time between fetches, from `10s` to `24h`. The default is `5m`.
    pub cache_duration: Option<String>,
    /// ConfigMap with the CA certificates that verify the server. The default is the system's
    /// trusted CA certificates.
    pub ca_certificate_ref: Option<JwksAuthorities>,
}

/// ConfigMap with CA certificates in the policy's own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwksAuthorities {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the ConfigMap's `data`. The default is `ca.crt`.
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// ConfigMap with a JSON Web Key Set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwksConfigMap {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the ConfigMap's `data`. The default is `jwks`.
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// Part of a request that may carry a token. Exactly one field must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwtSource {
    /// Header.
    pub header: Option<JwtHeader>,
    /// Query parameter.
    #[schemars(length(min = 1, max = 253))]
    pub query_parameter: Option<String>,
    /// Cookie.
    #[schemars(length(min = 1, max = 253))]
    pub cookie: Option<String>,
}

/// Header that contains a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JwtHeader {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Text before the token, such as `Bearer `.
    #[schemars(length(min = 1, max = 63))]
    pub prefix: Option<String>,
}

/// Header for the backend, set to the value of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimHeader {
    /// Name of the claim. Dots separate nested claims, as in `realm_access.roles`.
    #[schemars(length(min = 1, max = 253))]
    pub claim: String,
    /// Name of the header, which must begin with `x-`.
    #[schemars(length(min = 3, max = 253))]
    pub header: String,
}

/// Authorization rules. The first rule that matches a request decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessRules {
    /// Rules, in order of evaluation.
    #[schemars(length(min = 1, max = 16))]
    pub rules: Vec<AccessRule>,
    /// Action for requests that match no rule. The default is `Deny`.
    pub default_action: Option<AccessAction>,
}

/// Rule that matches a request if all its conditions hold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessRule {
    /// Action for matching requests.
    pub action: AccessAction,
    /// Conditions on claims in tokens that this policy accepts. All must hold.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub claims: Vec<ClaimValues>,
    /// Hostnames, either exact or with a leading `*.`. One of them must match the request's host.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub hosts: Vec<String>,
    /// HTTP methods. The request must use one of them.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(min = 1, max = 64)))]
    pub methods: Vec<String>,
    /// Paths. The request must match one of them.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub paths: Vec<AccessPath>,
    /// Conditions on headers. All must hold.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub headers: Vec<AccessHeader>,
    /// Networks, one of which must contain the client's address.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(min = 1, max = 49)))]
    pub clients: Vec<String>,
    /// Client certificates. The connection must have one of them, and the listener must have
    /// validated it. Requests without TLS or without a certificate never match, nor do requests
    /// with an unverified certificate that `AllowInsecureFallback` admits.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub certificates: Vec<AccessCertificate>,
}

/// Claim that must have one of these values. If the claim is a list, one of its strings must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimValues {
    /// Name of the claim. Dots separate nested claims, as in `realm_access.roles`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Accepted values.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))]
    pub values: Vec<String>,
}

/// Path of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessPath {
    /// `Exact`, or `PathPrefix`, which also matches paths below `value`. The default is
    /// `PathPrefix`.
    #[serde(rename = "type")]
    pub type_: Option<PathMatchType>,
    /// Path.
    #[schemars(length(min = 1, max = 1024))]
    pub value: String,
}

/// Header that must have one of these values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessHeader {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Accepted values.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))]
    pub values: Vec<String>,
}
