//! Users, passwords and API keys in AccessPolicies.

use schemars::JsonSchema;
use serde::Deserialize;

/// HTTP Basic authentication (RFC 7617). Passwords are sent with every request, so use it only with
/// HTTPS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuth {
    /// Secret with the users and their passwords' digests: bcrypt with a cost of at most 12, apr1, or
    /// SHA-1, as `htpasswd -B`, `-m` and `-s` write them.
    pub users: UserSecret,
    /// Header for the backend, set to the user's name. It must begin with `x-`, and is removed from
    /// client requests on the same routes as for `claimHeaders`.
    #[schemars(length(min = 3, max = 253))]
    pub username_header: Option<String>,
    /// `true` forwards the password to the backend, unless another policy removes it.
    pub forward_credentials: Option<bool>,
}

/// Secret of type `Opaque` in the policy's own namespace, with an htpasswd file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserSecret {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret's `data`. The default is `.htpasswd`.
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// API keys. A request must carry the key of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyAuth {
    /// Secrets with the clients' keys. No two clients may have the same name or key.
    #[schemars(length(min = 1, max = 8))]
    pub credentials: Vec<CredentialSecret>,
    /// Parts of a request that may carry a key, in order of precedence. The default is the header
    /// `x-api-key`.
    #[serde(default)]
    #[schemars(length(max = 4))]
    pub sources: Vec<ApiKeySource>,
    /// Header for the backend, set to the client's name. It must begin with `x-`, and is removed
    /// from client requests on the same routes as for `claimHeaders`.
    #[schemars(length(min = 3, max = 253))]
    pub client_header: Option<String>,
    /// `true` forwards the key to the backend, unless another policy removes it.
    pub forward_credentials: Option<bool>,
}

/// Secret of type `Opaque` in the policy's own namespace. Each entry in its `data` maps a client's
/// name to the client's key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialSecret {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Part of a request that may carry an API key. Exactly one field must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeySource {
    /// Header. `Bearer ` may precede the key, but no other text may.
    #[schemars(length(min = 1, max = 253))]
    pub header: Option<String>,
    /// Query parameter.
    #[schemars(length(min = 1, max = 253))]
    pub query_parameter: Option<String>,
    /// Cookie.
    #[schemars(length(min = 1, max = 253))]
    pub cookie: Option<String>,
}
