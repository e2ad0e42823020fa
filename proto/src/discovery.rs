//! OpenID Connect Discovery: a provider's endpoints in its configuration document.

use serde::{Deserialize, Serialize};

use crate::schema::OidcLogin;

/// Path below the issuer.
const PATH: &str = "/.well-known/openid-configuration";

/// Error in a configuration document. Never contains a part of the document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// Not a configuration document.
    #[error("is not an OpenID provider's configuration: line {0}, column {1}")]
    Syntax(usize, usize),
    /// The document belongs to another provider.
    #[error("names another issuer; expected exactly {0:?}")]
    Issuer(String),
    /// An endpoint must not be used.
    #[error("has an invalid {0}; expected an https URL without a user or fragment")]
    Endpoint(&'static str),
}

/// The endpoints of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderDocument {
    /// The provider's identifier.
    pub issuer: String,
    /// URL to which browsers are redirected.
    pub authorization_endpoint: String,
    /// URL that issues tokens.
    pub token_endpoint: String,
    /// URL that also ends sessions at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_session_endpoint: Option<String>,
}

/// Returns the URL of an issuer's document.
pub fn document_uri(issuer: &str) -> String {
    format!("{}{PATH}", issuer.trim_end_matches('/'))
}

/// Checks a document, and returns it without other members.
pub fn canonical(text: &str, issuer: &str) -> Result<String, DiscoveryError> {
    let document = ProviderDocument::parse(text, issuer)?;
    serde_json::to_string(&document).map_err(|error| syntax(&error))
}

impl ProviderDocument {
    /// Fails unless the document is the issuer's.
    pub fn parse(text: &str, issuer: &str) -> Result<Self, DiscoveryError> {
        let document: Self = serde_json::from_str(text).map_err(|error| syntax(&error))?;
        let Self {
            issuer: found,
            authorization_endpoint,
            token_endpoint,
            end_session_endpoint,
        } = &document;
        if found != issuer {
            return Err(DiscoveryError::Issuer(issuer.to_owned()));
        }
        let endpoints = [
            ("authorization_endpoint", Some(authorization_endpoint)),
            ("token_endpoint", Some(token_endpoint)),
            ("end_session_endpoint", end_session_endpoint.as_ref()),
        ];
        for (name, url) in endpoints {
            let is_usable =
                |url: &String| url.starts_with("https://") && OidcLogin::is_endpoint(url);
            if !url.is_none_or(is_usable) {
                return Err(DiscoveryError::Endpoint(name));
            }
        }
        Ok(document)
    }
}

fn syntax(error: &serde_json::Error) -> DiscoveryError {
    DiscoveryError::Syntax(error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://id.test/realms/shop";

    fn document(issuer: &str, token: &str) -> String {
        format!(
            r#"{{"issuer": "{issuer}", "authorization_endpoint": "https://id.test/auth",
            "token_endpoint": "{token}", "jwks_uri": "https://id.test/keys", "more": [1]}}"#
        )
    }

    #[test]
    fn document_is_reduced_to_endpoints() {
        let text = canonical(&document(ISSUER, "https://id.test/token"), ISSUER).expect("valid");
        let expected = r#"{"issuer":"https://id.test/realms/shop","authorization_endpoint":"https://id.test/auth","token_endpoint":"https://id.test/token"}"#;
        assert_eq!(text, expected);
        assert_eq!(canonical(&text, ISSUER), Ok(text));
        for issuer in ["https://id.test", "https://id.test/"] {
            let uri = "https://id.test/.well-known/openid-configuration";
            assert_eq!(document_uri(issuer), uri);
        }
    }

    #[test]
    fn foreign_and_unsafe_documents_are_refused() {
        let token = "https://id.test/token";
        for (text, expected) in [
            ("[]".to_owned(), "line 1"),
            ("{}".to_owned(), "line 1"),
            (document("https://evil.test", token), "another issuer"),
            (document(&format!("{ISSUER}/"), token), "another issuer"),
            (document(ISSUER, "http://id.test/token"), "token_endpoint"),
            (document(ISSUER, "https://me@id.test/x"), "token_endpoint"),
            (document(ISSUER, "https://id.test/#x"), "token_endpoint"),
        ] {
            let error = canonical(&text, ISSUER).expect_err("invalid").to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("evil"), "{error}");
        }
    }
}
