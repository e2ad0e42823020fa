//! Salts for credentials, whose digests are public.
//!
//! Anyone who can read a snapshot could otherwise guess a short API key by its digest. The salt is
//! part of the key pair, so it travels and is sealed with the credentials. The same key and name
//! always give the same salt.

use std::fmt;

use ring::hmac;

use crate::keys::{KeyPair, hex};

/// Readers of `name:value` lines skip this line as a comment.
const PREFIX: &str = "#salt ";

/// Secret of an installation, from which it derives the salts of its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct SaltKey([u8; Self::BYTES]);

impl SaltKey {
    /// Length in bytes.
    pub const BYTES: usize = 32;

    /// The bytes must be secret and unpredictable.
    pub fn new(secret: [u8; Self::BYTES]) -> Self {
        Self(secret)
    }

    /// Adds the salt for the pair's name to its credentials.
    pub fn add_to(&self, pair: &mut KeyPair) {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let salt = hex(hmac::sign(&key, pair.name.as_bytes()).as_ref());
        let mut salted = format!("{PREFIX}{salt}\n").into_bytes();
        salted.append(&mut pair.private_key);
        pair.private_key = salted;
    }
}

impl fmt::Debug for SaltKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SaltKey")
    }
}

/// Returns the credentials without their salt, if they have one.
pub fn without_salt(text: &str) -> &str {
    let salted = text.strip_prefix(PREFIX);
    let salted = salted.and_then(|rest| rest.split_once('\n'));
    salted.map_or(text, |(_, credentials)| credentials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::{api_keys, write};

    #[test]
    fn digests_depend_on_name_and_secret() {
        let digest = |secret: u8, name: &str| {
            let mut pair = KeyPair {
                name: name.to_owned(),
                private_key: b"shop:1234\n".to_vec(),
                ..KeyPair::default()
            };
            let bare = pair.digest();
            SaltKey::new([secret; SaltKey::BYTES]).add_to(&mut pair);
            assert_ne!(pair.digest(), bare);
            let text = str::from_utf8(&pair.private_key).unwrap();
            assert_eq!(write(&api_keys(text).unwrap()), "shop:1234\n");
            assert_eq!(without_salt(text), "shop:1234\n");
            pair.digest()
        };
        assert_eq!(digest(1, "a"), digest(1, "a"));
        assert_ne!(digest(1, "a"), digest(2, "a"));
        assert_ne!(digest(1, "a"), digest(1, "b"));
        for other in ["#salt 1234", "Bearer 1234", ""] {
            assert_eq!(without_salt(other), other);
        }
        assert_eq!(format!("{:?}", SaltKey::new([7; 32])), "SaltKey");
    }
}
