//! Tokens in an `HTTPProxy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::ProxyValidation;

/// `JWTProvider`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyJwtProvider {
    /// The name.
    pub name: String,
    /// True if routes need this provider's token by default.
    pub default: bool,
    /// Value of the claim `iss`; not checked if empty.
    pub issuer: String,
    /// Accepted audiences; not checked if empty.
    pub audiences: Vec<String>,
    /// The key set is fetched from here.
    #[serde(rename = "remoteJWKS")]
    pub remote_jwks: Option<ProxyRemoteJwks>,
    /// The key set is in a Secret.
    #[serde(rename = "localJWKS")]
    pub local_jwks: Option<ProxyLocalJwks>,
    /// True to forward the token to the Service.
    #[serde(rename = "forwardJWT")]
    pub forward_jwt: bool,
}

/// `RemoteJWKS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyRemoteJwks {
    /// HTTPS URI.
    pub uri: String,
    /// CA certificates that verify the server; the system's by default.
    pub validation: Option<ProxyValidation>,
    /// Not used: each fetch has the same timeout.
    pub timeout: String,
    /// Time between two fetches, as a Go duration.
    pub cache_duration: String,
    /// Not used.
    pub dns_lookup_family: String,
}

/// `LocalJWKS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyLocalJwks {
    /// Secret in the HTTPProxy's namespace.
    pub secret_name: String,
    /// Key of the Secret's data.
    pub key: String,
}

/// `JWTVerificationPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyJwtVerification {
    /// The provider.
    pub require: String,
    /// True if no token is needed.
    pub disabled: bool,
}
