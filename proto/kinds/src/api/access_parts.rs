//! Parts of an `AccessPolicy`, each of which checks requests.

use super::AccessPolicySpec;

/// Part of an `AccessPolicy`. At least one must be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPart {
    /// Client addresses.
    IpFilter,
    /// Users and passwords.
    BasicAuth,
    /// API keys.
    ApiKeyAuth,
    /// Request origins.
    Csrf,
    /// Login.
    Oidc,
    /// JSON Web Tokens.
    Jwt,
    /// Rules.
    Authorization,
    /// External service.
    ExtAuth,
}

impl AccessPart {
    /// All parts.
    pub const ALL: [Self; 8] = [
        Self::IpFilter,
        Self::BasicAuth,
        Self::ApiKeyAuth,
        Self::Csrf,
        Self::Oidc,
        Self::Jwt,
        Self::Authorization,
        Self::ExtAuth,
    ];

    /// Parts that layer 4 routes do not support.
    pub const HTTP_ONLY: [Self; 7] = {
        let [Self::IpFilter, http_only @ ..] = Self::ALL else {
            panic!("`ALL` begins with the only other part");
        };
        http_only
    };

    /// Parts that cannot be observed without rejecting requests, so mode `Report` does not support
    /// them.
    pub const ENFORCED_ONLY: [Self; 5] = [
        Self::BasicAuth,
        Self::ApiKeyAuth,
        Self::Csrf,
        Self::Oidc,
        Self::ExtAuth,
    ];

    /// Returns the name of the field in `spec`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IpFilter => "ipFilter",
            Self::BasicAuth => "basicAuth",
            Self::ApiKeyAuth => "apiKeyAuth",
            Self::Csrf => "csrf",
            Self::Oidc => "oidc",
            Self::Jwt => "jwt",
            Self::Authorization => "authorization",
            Self::ExtAuth => "extAuth",
        }
    }
}

impl AccessPolicySpec {
    /// Returns true if this part is set.
    pub fn has(&self, part: AccessPart) -> bool {
        let Self {
            target_refs: _,
            mode: _,
            ip_filter,
            csrf,
            basic_auth,
            api_key_auth,
            oidc,
            jwt,
            authorization,
            ext_auth,
            exemptions: _,
        } = self;
        match part {
            AccessPart::IpFilter => ip_filter.is_some(),
            AccessPart::BasicAuth => basic_auth.is_some(),
            AccessPart::ApiKeyAuth => api_key_auth.is_some(),
            AccessPart::Csrf => csrf.is_some(),
            AccessPart::Oidc => oidc.is_some(),
            AccessPart::Jwt => jwt.is_some(),
            AccessPart::Authorization => authorization.is_some(),
            AccessPart::ExtAuth => ext_auth.is_some(),
        }
    }
}
