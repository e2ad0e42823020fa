//! Changes to cookies of Services in an `HTTPProxy`.

use schemars::JsonSchema;
use serde::Deserialize;

/// `CookieRewritePolicy`. It is checked, but not supported, so it has no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyCookieRewrite {
    /// Name of the cookie.
    pub name: String,
    /// The new `Path`.
    pub path_rewrite: Option<ProxyCookieValue>,
    /// The new `Domain`.
    pub domain_rewrite: Option<ProxyCookieValue>,
    /// Whether the cookie is `Secure`.
    pub secure: Option<bool>,
    /// The new `SameSite`: `Strict`, `Lax` or `None`.
    pub same_site: Option<Box<str>>,
}

/// `CookiePathRewrite` and `CookieDomainRewrite`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProxyCookieValue {
    /// The value.
    pub value: String,
}
