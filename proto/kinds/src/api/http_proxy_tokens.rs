//! JWT verification in an `HTTPProxy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::ProxyValidation;

/// `JWTProvider`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyJwtProvider {
    /// The name.
    pub name: String,
    /// True if routes require this provider's token by default.
    pub default: bool,
    /// Required value of the `iss` claim; not checked if empty.
    pub issuer: String,
    /// Accepted audiences; not checked if empty.
    pub audiences: Vec<String>,
    /// Key set to fetch over HTTPS.
    #[serde(rename = "remoteJWKS")]
    pub remote_jwks: Option<ProxyRemoteJwks>,
    /// Key set in a Secret.
    #[serde(rename = "localJWKS")]
    pub local_jwks: Option<ProxyLocalJwks>,
    /// If true, forwards the token to the Service.
    #[serde(rename = "forwardJWT")]
    pub forward_jwt: bool,
}

/// `RemoteJWKS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyRemoteJwks {
    /// HTTPS URI of the key set.
    pub uri: String,
    /// Verification of the server's certificate. By default, the system's CA certificates are used.
    pub validation: Option<ProxyValidation>,
    /// Has no effect: all fetches have the same timeout.
    pub timeout: String,
    /// Time between fetches, as a Go duration.
    pub cache_duration: String,
    /// Has no effect.
    pub dns_lookup_family: String,
}

/// `LocalJWKS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyLocalJwks {
    /// Secret in the HTTPProxy's namespace.
    pub secret_name: String,
    /// Key in the Secret's data.
    pub key: String,
}

/// `JWTVerificationPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyJwtVerification {
    /// Name of the provider whose token is required.
    pub require: String,
    /// True if no token is required.
    pub disabled: bool,
}
