//! Reads the owner and lifetime of a ServiceAccount token. The token is not verified, so use the
//! result only to schedule the next token request.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;

/// Maximum size of a token in bytes.
pub const MAX_CREDENTIAL_BYTES: u64 = 64 << 10;

/// The claims in a ServiceAccount token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Issue time, according to the API server's clock.
    pub issued: Timestamp,
    /// Expiry time, according to the API server's clock.
    pub expires: Timestamp,
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub account: String,
    /// Name and UID of the Secret to which the token is bound.
    pub secret: Option<(String, String)>,
}

#[derive(Deserialize)]
struct Claims {
    iat: i64,
    exp: i64,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Kubernetes,
}

#[derive(Deserialize)]
struct Kubernetes {
    namespace: String,
    serviceaccount: Reference,
    secret: Option<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    name: String,
    uid: String,
}

impl Credential {
    /// Parses the claims of a ServiceAccount token. Returns `None` for any other token.
    pub fn parse(token: &str) -> Option<Self> {
        let claims = token.trim().split('.').nth(1)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        let Claims {
            iat,
            exp,
            kubernetes,
        } = serde_json::from_slice(&claims).ok()?;
        Some(Self {
            issued: Timestamp::from_second(iat).ok()?,
            expires: Timestamp::from_second(exp).ok()?,
            namespace: kubernetes.namespace,
            account: kubernetes.serviceaccount.name,
            secret: kubernetes.secret.map(|secret| (secret.name, secret.uid)),
        })
    }

    /// Returns the lifetime in seconds, or 0 if the token expires before it was issued.
    pub fn lifetime_seconds(&self) -> i64 {
        (self.expires.as_second() - self.issued.as_second()).max(0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credential_parses_token_claims_or_returns_none() {
        let claims = json!({
            "iat": 1000, "exp": 4600, "iss": "https://kubernetes.default.svc",
            "kubernetes.io": {
                "namespace": "sesame-system",
                "serviceaccount": {"name": "sesame-host.a", "uid": "1"},
                "secret": {"name": "sesame-host.a", "uid": "2"},
            },
        });
        let token = |claims: &serde_json::Value| {
            format!("e30.{}.c2ln\n", URL_SAFE_NO_PAD.encode(claims.to_string()))
        };
        let read = Credential::parse(&token(&claims)).expect("a token");
        assert_eq!(read.lifetime_seconds(), 3600);
        assert_eq!(read.account, "sesame-host.a");
        assert_eq!(
            read.secret,
            Some(("sesame-host.a".to_owned(), "2".to_owned()))
        );
        for other in ["", "abc", "a.b.c", &token(&json!({"exp": 1}))] {
            assert_eq!(Credential::parse(other), None, "{other}");
        }
    }
}
