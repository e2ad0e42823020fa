//! Key sets (JWKS) from token issuers: requests to fetch them, and the stored copies.
//!
//! A copy is stored as the data of a ConfigMap, so that resolution reads fetched key sets like
//! configured ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::digest;

/// Requests, by the name of the copy.
pub type KeySetRequests = BTreeMap<String, KeySetRequest>;

/// Copies, by name.
pub type KeySetCopies = BTreeMap<String, KeySetCopy>;

/// Request to fetch a key set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySetRequest {
    /// HTTPS URI.
    pub uri: String,
    /// CA certificates that verify the server.
    pub trust: KeySetTrust,
    /// Time between two fetches.
    pub interval: Duration,
    /// Permits the addresses that are refused for endpoints, such as loopback.
    pub permits_local: bool,
}

/// CA certificates for verifying a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySetTrust {
    /// The system's trusted certificates.
    System,
    /// These certificates, as PEM.
    Pem(Arc<str>),
    /// The object with the certificates is missing or invalid, so the key set is not fetched. The
    /// existing copy remains in use.
    Unavailable,
}

/// The last good version of a key set, and the reason why it could not be renewed, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeySetCopy {
    /// URI from which the keys were fetched.
    pub uri: String,
    /// Keys in canonical form; empty if none were fetched, or if they are too old.
    pub jwks: String,
    /// Time of the last successful fetch (RFC 3339); empty if there was none.
    pub fetched_at: String,
    /// Error of the last fetch; empty after a success.
    pub error: String,
}

/// Prefix of the names of all copies.
const PREFIX: &str = "sesame-jwks-";

/// Returns true if a ConfigMap with this name might be a copy.
pub fn is_copy_name(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Returns the name of a controller's copy for a URI. `authorities` names the object with the CA
/// certificates, and is empty for the system's certificates. Since the name depends on this object,
/// a tenant's CA never vouches for another tenant's keys.
pub fn copy_name(controller: &str, uri: &str, authorities: &str) -> String {
    let parts = [controller, "\0", uri, "\0", authorities];
    let mut digest = digest::sha256_of_all(&parts.map(str::as_bytes));
    digest.truncate(32);
    format!("{PREFIX}{digest}")
}

/// Keys of the data in which a copy is stored.
const URI: &str = "uri";
const JWKS: &str = "jwks";
const FETCHED_AT: &str = "fetchedAt";
const ERROR: &str = "error";

impl KeySetCopy {
    /// Reads a copy from the data of a ConfigMap. Missing entries count as empty.
    pub fn from_data(data: &BTreeMap<String, String>) -> Self {
        let get = |key: &str| data.get(key).cloned().unwrap_or_default();
        Self {
            uri: get(URI),
            jwks: get(JWKS),
            fetched_at: get(FETCHED_AT),
            error: get(ERROR),
        }
    }

    /// Returns the copy as a ConfigMap's data.
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
