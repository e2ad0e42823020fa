//! Logins in AccessPolicies.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{BackendObjectRef, ForwardedToken, JwksAuthorities};

/// Login with OpenID Connect: the authorization code flow, with PKCE. Requests without a session
/// are redirected to the provider if a browser loads a page; all others get 401. The session is in
/// cookies that only HTTPS requests to the same host carry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcLogin {
    /// The OpenID provider.
    pub provider: OidcProvider,
    /// ID of the client that the provider has registered.
    #[serde(rename = "clientID")]
    #[schemars(length(min = 1, max = 253))]
    pub client_id: String,
    /// Secret of the client.
    pub client_secret: ClientSecret,
    /// Hosts on which users log in, such as `www.example.com` or `*.example.com`. Requests without
    /// a session to other hosts get 401. The provider must allow the URL
    /// `https://HOST/oauth2/callback`, or another `redirectPath`, for each host.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))]
    pub hostnames: Vec<String>,
    /// Scopes to request besides `openid`.
    #[serde(default)]
    #[schemars(length(max = 15), inner(length(min = 1, max = 253)))]
    pub scopes: Vec<String>,
    /// Path to which the provider sends users after the login. A route of the policy must match it.
    /// The default is `/oauth2/callback`.
    #[schemars(length(min = 2, max = 1024))]
    pub redirect_path: Option<String>,
    /// Path that ends the session. A route of the policy must match it. The default is `/logout`.
    #[schemars(length(min = 2, max = 1024))]
    pub logout_path: Option<String>,
    /// Paths of APIs, each with all paths below it. Requests without a session get 401 there, never
    /// a redirect.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(min = 2, max = 1024)))]
    pub api_paths: Vec<String>,
    /// `false` ends sessions when the provider's token expires. By default, they are renewed if the
    /// provider issues refresh tokens.
    pub refresh: Option<bool>,
    /// Token to forward to the backend and to check with `jwt`, in the header `Authorization`:
    /// `AccessToken` or `IDToken`. None by default.
    pub forward_token: Option<ForwardedToken>,
}

/// OpenID provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcProvider {
    /// HTTPS URL of the issuer. The endpoints below that are unset are read from its
    /// `/.well-known/openid-configuration`, which must name this issuer. Redirects are not followed.
    #[schemars(length(min = 9, max = 2000))]
    pub issuer: Option<String>,
    /// ConfigMap with the CA certificates that verify `issuer`. The default is the system's trusted
    /// CA certificates.
    pub ca_certificate_ref: Option<JwksAuthorities>,
    /// URL to which browsers are redirected. Required without `issuer`.
    #[schemars(length(min = 8, max = 2048))]
    pub authorization_endpoint: Option<String>,
    /// URL of the token endpoint. Required without `issuer`. With `https`, the Service must have a
    /// BackendTLSPolicy.
    #[schemars(length(min = 8, max = 2048))]
    pub token_endpoint: Option<String>,
    /// URL that also ends the session at the provider. If the other two URLs are set, it is not read
    /// from `issuer`.
    #[schemars(length(min = 8, max = 2048))]
    pub end_session_endpoint: Option<String>,
    /// Service that serves the token endpoint. A Service in another namespace requires a
    /// ReferenceGrant.
    pub backend_ref: BackendObjectRef,
}

/// Secret of type `Opaque` in the policy's own namespace. Its entry `client-secret` authenticates
/// the client. The entry `hmac-secret`, or else `client-secret`, protects cookies, and must have at
/// least 16 characters. Changing it ends all sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientSecret {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl OidcProvider {
    /// Returns the issuer if its document is needed.
    pub fn discovered(&self) -> Option<&String> {
        let is_complete = self.authorization_endpoint.is_some() && self.token_endpoint.is_some();
        self.issuer.as_ref().filter(|_| !is_complete)
    }
}
