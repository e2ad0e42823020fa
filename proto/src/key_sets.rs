//! Requests for token issuers' key sets (JWKS) and OpenID providers' configuration documents, and the
//! stored copies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::digest;

/// Requests, by the copy's name.
pub type KeySetRequests = BTreeMap<String, KeySetRequest>;

/// Copies, by name.
pub type KeySetCopies = BTreeMap<String, KeySetCopy>;

/// Request to fetch a key set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySetRequest {
    /// HTTPS URI.
    pub uri: String,
    /// Kind of the document.
    pub document: FetchedDocument,
    /// CA certificates for the server.
    pub trust: KeySetTrust,
    /// Time between fetches.
    pub interval: Duration,
    /// Permits addresses that endpoints must not have, such as loopback.
    pub permits_local: bool,
}

/// Kind of a fetched document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchedDocument {
    /// A JSON Web Key Set.
    KeySet,
    /// The configuration of the OpenID provider with this issuer.
    Provider(String),
}

/// CA certificates for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySetTrust {
    /// The system's certificates.
    System,
    /// PEM certificates.
    Pem(Arc<str>),
    /// The certificates are unavailable, so the existing copy remains in use.
    Unavailable,
}

/// The last good version of a key set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeySetCopy {
    /// URI of the document.
    pub uri: String,
    /// Keys, or a provider's configuration, in canonical form; empty if never fetched or too old.
    pub jwks: String,
    /// Time of the last successful fetch (RFC 3339); empty if none.
    pub fetched_at: String,
    /// Error from the last fetch; empty if the fetch succeeded.
    pub error: String,
}

const PREFIX: &str = "sesame-jwks-";

/// Returns true if a ConfigMap with this name might be a copy.
pub fn is_copy_name(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Returns the name of a controller's copy. The name depends on `authorities`, the object with the
/// CA certificates, because a tenant's CA must not vouch for another tenant's keys.
pub fn copy_name(controller: &str, uri: &str, authorities: &str) -> String {
    let parts = [controller, "\0", uri, "\0", authorities];
    let mut digest = digest::sha256_of_all(&parts.map(str::as_bytes));
    digest.truncate(32);
    format!("{PREFIX}{digest}")
}

const URI: &str = "uri";
const JWKS: &str = "jwks";
const FETCHED_AT: &str = "fetchedAt";
const ERROR: &str = "error";

impl KeySetCopy {
    /// Reads a copy from a ConfigMap's data. Missing entries count as empty.
    pub fn from_data(data: &BTreeMap<String, String>) -> Self {
        let get = |key: &str| data.get(key).cloned().unwrap_or_default();
        Self {
            uri: get(URI),
            jwks: get(JWKS),
            fetched_at: get(FETCHED_AT),
            error: get(ERROR),
        }
    }

    /// Returns the data to store in a ConfigMap.
    pub fn to_data(&self) -> BTreeMap<String, String> {
        let Self {
            uri,
            jwks,
            fetched_at,
            error,
        } = self;
        let entries = [
            (URI, uri),
            (JWKS, jwks),
            (FETCHED_AT, fetched_at),
            (ERROR, error),
        ];
        let entries = entries.into_iter().filter(|(_, text)| !text.is_empty());
        let entries = entries.map(|(key, text)| (key.to_owned(), text.clone()));
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_survives_a_round_trip() {
        let copy = KeySetCopy {
            uri: "https://issuer.test/keys".to_owned(),
            error: "no route to host".to_owned(),
            ..KeySetCopy::default()
        };
        let data = copy.to_data();
        assert_eq!(data.len(), 2);
        assert_eq!(KeySetCopy::from_data(&data), copy);
    }

    #[test]
    fn names_depend_on_authorities() {
        let uri = "https://issuer.test/keys";
        let name = copy_name("us", uri, "");
        assert_eq!(name.len(), PREFIX.len() + 32);
        assert_ne!(name, copy_name("us", uri, "ConfigMap/apps/ca/ca.crt"));
        assert_ne!(copy_name("us", "ab", "c"), copy_name("us", "a", "bc"));
    }
}
