//! JSON Web Key Sets (RFC 7517): the public keys of token issuers.
//!
//! A secret key makes the whole set invalid, because snapshots are not secret. Public keys that
//! Envoy cannot use are omitted.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// Maximum size of an unreduced key set in bytes.
pub const MAX_BYTES: usize = 64 * 1024;
/// Maximum size of a reduced key set in bytes. Every snapshot that uses the set contains a copy.
pub const MAX_USED_BYTES: usize = 16 * 1024;
/// Maximum number of keys in a set, including unusable ones.
pub const MAX_KEYS: usize = 64;
const MAX_KID: usize = 256;

/// An Ed25519 key that is not on the curve, so no signature is valid for it. Envoy rejects a set
/// without usable keys, together with the keys of all other policies.
const UNUSABLE: &str = r#"{"alg":"EdDSA","crv":"Ed25519","kid":"","kty":"OKP","x":"AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#;

/// Error in a key set. Never contains a key's value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// Too many bytes.
    #[error("has {0} bytes; at most {MAX_BYTES} are allowed")]
    TooLarge(usize),
    /// Too many bytes in usable keys.
    #[error("has {0} bytes of usable keys; at most {MAX_USED_BYTES} are allowed")]
    TooLargeUsed(usize),
    /// Not a JSON Web Key Set.
    #[error("is not a JSON Web Key Set: line {0}, column {1}")]
    Syntax(usize, usize),
    /// Too many keys.
    #[error("has {0} keys; at most {MAX_KEYS} are allowed")]
    TooMany(usize),
    /// Contains a secret key, which must not be published.
    #[error("keys[{0}] is secret; expected public keys only")]
    Secret(usize),
    /// No key can verify signatures.
    #[error(
        "has no usable key; expected RSA of 2048 to 8192 bits, EC on P-256, P-384 or P-521, or Ed25519"
    )]
    None,
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Key>,
}

/// If a member has the wrong type, the set is invalid.
#[derive(Deserialize)]
struct Key {
    kty: String,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    /// Private part of an asymmetric key. `k` is a symmetric key.
    d: Option<serde::de::IgnoredAny>,
    k: Option<serde::de::IgnoredAny>,
}

#[derive(Serialize)]
struct Usable<'k> {
    #[serde(skip_serializing_if = "Option::is_none")]
    alg: Option<&'k str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crv: Option<&'k str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<&'k str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'k str>,
    kty: &'k str,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<&'k str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<&'k str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<&'k str>,
}

#[derive(Serialize)]
struct UsableSet<'k> {
    keys: Vec<Usable<'k>>,
}

/// Returns the usable keys in their original order, reduced to the needed members.
pub fn canonical(text: &str) -> Result<String, JwksError> {
    if text.len() > MAX_BYTES {
        return Err(JwksError::TooLarge(text.len()));
    }
    let set: Set = serde_json::from_str(text)
        .map_err(|error| JwksError::Syntax(error.line(), error.column()))?;
    if set.keys.len() > MAX_KEYS {
        return Err(JwksError::TooMany(set.keys.len()));
    }
    let is_secret = |key: &Key| key.d.is_some() || key.k.is_some() || key.kty == "oct";
    if let Some(i) = set.keys.iter().position(is_secret) {
        return Err(JwksError::Secret(i));
    }
    let keys: Vec<Usable<'_>> = set.keys.iter().filter_map(usable).collect();
    if keys.is_empty() {
        return Err(JwksError::None);
    }
    let set = UsableSet { keys };
    let set = serde_json::to_string(&set);
    let set = set.map_err(|error| JwksError::Syntax(error.line(), error.column()))?;
    if set.len() > MAX_USED_BYTES {
        return Err(JwksError::TooLargeUsed(set.len()));
    }
    Ok(set)
}

/// Returns a canonical set for which no signature is valid.
pub fn placeholder() -> String {
    format!(r#"{{"keys":[{UNUSABLE}]}}"#)
}

/// Returns the usable keys followed by `UNUSABLE`, so that Envoy always accepts the set.
pub fn acceptable(text: &str) -> Result<String, JwksError> {
    let canonical = canonical(text)?;
    let keys = canonical.strip_suffix("]}").unwrap_or(&canonical);
    Ok(format!("{keys},{UNUSABLE}]}}"))
}

fn usable(key: &Key) -> Option<Usable<'_>> {
    let Key {
        kty,
        purpose,
        alg,
        kid,
        crv,
        n,
        e,
        x,
        y,
        d: _,
        k: _,
    } = key;
    let verifies = purpose.as_deref().is_none_or(|it| it == "sig");
    let has_short_name = kid.as_ref().is_none_or(|it| it.len() <= MAX_KID);
    if !verifies || !has_short_name {
        return None;
    }
    let (alg, kid) = (alg.as_deref(), kid.as_deref());
    let (crv, n, e) = (crv.as_deref(), n.as_deref(), e.as_deref());
    let (x, y) = (x.as_deref(), y.as_deref());
    let bytes = |text: Option<&str>| URL_SAFE_NO_PAD.decode(text?).ok();
    let is_long = |text, length| bytes(text).is_some_and(|it| it.len() == length);
    let mut used = Usable {
        alg,
        crv: None,
        e: None,
        kid,
        kty,
        n: None,
        x: None,
        y: None,
    };
    match (kty.as_str(), crv) {
        ("RSA", _) => {
            let matches_prefix = |prefix: &str| alg.is_none_or(|it| it.starts_with(prefix));
            let modulus = bytes(n)?;
            let bits = modulus.len() * 8;
            let is_odd = |bytes: &[u8]| bytes.last().is_some_and(|it| it % 2 == 1);
            let exponent = bytes(e).filter(|it| it.len() <= 4 && is_odd(it));
            let is_valid = (2048..=8192).contains(&bits)
                && is_odd(&modulus)
                && exponent.is_some()
                && (matches_prefix("RS") || matches_prefix("PS"));
            (used.n, used.e) = (n, e);
            is_valid.then_some(used)
        }
        ("EC", Some(curve)) => {
            let (length, expected) = match curve {
                "P-256" => (32, "ES256"),
                "P-384" => (48, "ES384"),
                "P-521" => (66, "ES512"),
                _ => return None,
            };
            let matches_alg = alg.is_none_or(|it| it == expected);
            (used.alg, used.crv) = (Some(expected), crv);
            (used.x, used.y) = (x, y);
            (matches_alg && is_long(x, length) && is_long(y, length)).then_some(used)
        }
        ("OKP", Some("Ed25519")) => {
            let matches_alg = alg.is_none_or(|it| it == "EdDSA");
            // Always set the key's algorithm. Without it, Envoy would not check the token's
            // algorithm.
            (used.alg, used.crv, used.x) = (Some("EdDSA"), crv, x);
            (matches_alg && is_long(x, 32)).then_some(used)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(length: usize) -> String {
        URL_SAFE_NO_PAD.encode(vec![7; length])
    }

    fn rsa(bytes: usize, more: &str) -> String {
        let n = encoded(bytes);
        format!(r#"{{"kty":"RSA","e":"AQAB","n":"{n}"{more}}}"#)
    }

    #[test]
    fn set_is_reduced_to_usable_keys() {
        let (x, short) = (encoded(32), encoded(31));
        let set = format!(
            r#"{{"keys": [
                {{"kty":"OKP","crv":"Ed25519","x":"{x}","x5c":["a"],"kid":"a"}},
                {{"kty":"OKP","crv":"Ed25519","x":"{short}"}},
                {{"kty":"OKP","crv":"X25519","x":"{x}"}},
                {{"kty":"EC","crv":"secp256k1","x":"{x}","y":"{x}"}},
                {},{},{},{}
            ], "other": 1}}"#,
            rsa(128, ""),
            rsa(256, r#","use":"enc""#),
            rsa(256, r#","alg":"ES256""#),
            rsa(256, r#","alg":"RS256","use":"sig""#),
        );
        let n = encoded(256);
        let expected = format!(
            r#"{{"keys":[{{"alg":"EdDSA","crv":"Ed25519","kid":"a","kty":"OKP","x":"{x}"}},{{"alg":"RS256","e":"AQAB","kty":"RSA","n":"{n}"}}]}}"#
        );
        assert_eq!(canonical(&set), Ok(expected.clone()));
        assert_eq!(canonical(&expected), Ok(expected));
    }

    #[test]
    fn secret_and_unusable_sets_are_errors() {
        for (keys, error) in [
            (String::new(), JwksError::None),
            (rsa(128, ""), JwksError::None),
            (rsa(256, r#","d":"AA""#), JwksError::Secret(0)),
            (
                r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned(),
                JwksError::Secret(0),
            ),
            (r#"{"kty":"oct"}"#.to_owned(), JwksError::Secret(0)),
            (vec![rsa(256, ""); 65].join(","), JwksError::TooMany(65)),
            (
                vec![rsa(1024, ""); 12].join(","),
                JwksError::TooLargeUsed(16_786),
            ),
            (" ".repeat(MAX_BYTES), JwksError::TooLarge(MAX_BYTES + 11)),
        ] {
            let set = format!(r#"{{"keys":[{keys}]}}"#);
            assert_eq!(canonical(&set), Err(error), "{}", set.len());
        }
        for text in ["", "[]", r#"{"keys":{}}"#, r#"{"keys":[{"kty":1}]}"#] {
            assert!(
                matches!(canonical(text), Err(JwksError::Syntax(..))),
                "{text}"
            );
        }
    }
}
