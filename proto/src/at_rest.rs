//! Encrypts the private keys that a host stores on disk.
//!
//! Each private key is encrypted separately with ChaCha20-Poly1305, and bound to its name and
//! chain. HKDF-SHA256 derives the cipher's key from the host's key and a random salt. Never print a
//! private key, and never accept a key that was sealed under a different name.

use std::fmt;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use sha2::{Digest as _, Sha256};

use crate::bounds::{self, BoundsError, Field, FieldKind, Shape};
use crate::keys::{KeyPair, MAX_DECODED_BYTES, hex};

/// Domain separator for all encryption, and prefix of all encrypted data.
const DOMAIN: &[u8] = b"sesame at rest v1\n";
const PREFIX: &str = "SESAME-SEALING-KEY-";
/// Length of the checksum that detects typos, in bytes.
const CHECKSUM: usize = 4;
const ID: usize = 8;
const SALT: usize = 32;

/// A host's key for encrypting private keys.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey([u8; 32]);

/// Error when reading encrypted data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AtRestError {
    /// The text is not a valid sealing key.
    #[error("missing or malformed sealing key")]
    NoKey,
    /// A different key encrypted the data.
    #[error("is sealed with key {id}, which this host does not have")]
    OtherKey {
        /// Identifier of the required key.
        id: String,
    },
    /// The data is damaged, or was sealed for a different `place`.
    #[error("is sealed with this host's key, but is damaged or was sealed for another object")]
    Damaged,
}

impl SealingKey {
    /// Creates a key from random bytes.
    pub fn from_random(random: [u8; 32]) -> Self {
        Self(random)
    }

    /// Parses the format of [`SealingKey::stored`].
    pub fn parse(stored: &str) -> Result<Self, AtRestError> {
        let encoded = stored.trim_end().strip_prefix(PREFIX);
        let bytes = encoded.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let bytes = bytes.ok_or(AtRestError::NoKey)?;
        let (key, checksum) = bytes.split_first_chunk::<32>().ok_or(AtRestError::NoKey)?;
        if Sha256::digest(key)[..CHECKSUM] != *checksum {
            return Err(AtRestError::NoKey);
        }
        Ok(Self(*key))
    }

    /// Returns the key as a string, which the caller must protect.
    pub fn stored(&self) -> String {
        let checksum = Sha256::digest(self.0);
        let encoded = URL_SAFE_NO_PAD.encode([&self.0[..], &checksum[..CHECKSUM]].concat());
        format!("{PREFIX}{encoded}\n")
    }

    /// Returns an identifier that reveals nothing about the key.
    pub fn id(&self) -> String {
        hex(&self.id_bytes())
    }

    fn id_bytes(&self) -> [u8; ID] {
        let digest = Sha256::digest([DOMAIN, &self.0].concat());
        let mut id = [0; ID];
        id.copy_from_slice(&digest[..ID]);
        id
    }

    fn cipher(&self, salt: &[u8]) -> Result<LessSafeKey, AtRestError> {
        let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0);
        let derived = derived.expand(&[DOMAIN], &CHACHA20_POLY1305);
        let derived: UnboundKey = derived.map_err(|_| AtRestError::Damaged)?.into();
        Ok(LessSafeKey::new(derived))
    }

    /// Encrypts bytes. Decryption requires the same `place`. `salt` must be random.
    pub fn seal(
        &self,
        clear: &[u8],
        place: &[u8],
        salt: [u8; SALT],
    ) -> Result<Vec<u8>, AtRestError> {
        let head = [DOMAIN, &self.id_bytes(), &salt].concat();
        let mut content = clear.to_vec();
        let bound = [&head, place].concat();
        self.cipher(&salt)?
            .seal_in_place_append_tag(nonce(), Aad::from(&bound), &mut content)
            .map_err(|_| AtRestError::Damaged)?;
        Ok([head, content].concat())
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({})", self.id())
    }
}

/// Returns true if [`SealingKey::seal`] produced the data.
pub fn is_sealed(stored: &[u8]) -> bool {
    stored.starts_with(DOMAIN)
}

/// Returns true if this key encrypted the bytes.
pub fn is_sealed_with(stored: &[u8], key: &SealingKey) -> bool {
    let rest = stored.strip_prefix(DOMAIN);
    rest.is_some_and(|rest| rest.starts_with(&key.id_bytes()))
}

/// Decrypts bytes with the matching key.
pub fn open<'k>(
    stored: &[u8],
    place: &[u8],
    keys: impl IntoIterator<Item = &'k SealingKey>,
) -> Result<Vec<u8>, AtRestError> {
    let rest = stored.strip_prefix(DOMAIN).ok_or(AtRestError::Damaged)?;
    let (id, rest) = rest.split_first_chunk::<ID>().ok_or(AtRestError::Damaged)?;
    let (salt, content) = rest
        .split_first_chunk::<SALT>()
        .ok_or(AtRestError::Damaged)?;
    let mut keys = keys.into_iter();
    let key = keys.find(|key| key.id_bytes() == *id);
    let key = key.ok_or_else(|| AtRestError::OtherKey { id: hex(id) })?;
    let bound = [DOMAIN, id, salt, place].concat();
    let mut content = content.to_vec();
    let cipher = key.cipher(salt)?;
    let opened = cipher.open_in_place(nonce(), Aad::from(&bound), &mut content);
    let length = opened.map_err(|_| AtRestError::Damaged)?.len();
    content.truncate(length);
    Ok(content)
}

/// A constant nonce is safe, because each derived key encrypts only once.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// A stored key pair.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct StoredPair {
    /// Name in the form `Secret/namespace/name`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// PEM certificates, leaf first.
    #[prost(bytes = "vec", tag = "2")]
    pub certificate_chain: Vec<u8>,
    /// PEM; empty if stored encrypted.
    #[prost(bytes = "vec", tag = "3")]
    private_key: Vec<u8>,
    /// Encrypted PEM.
    #[prost(bytes = "vec", tag = "4")]
    sealed: Vec<u8>,
    /// [`KeyPair::digest`]; empty if the private key is stored unencrypted.
    #[prost(string, tag = "5")]
    digest: String,
    #[prost(bytes = "vec", tag = "6")]
    ocsp_staple: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct StoredPairs {
    #[prost(message, repeated, tag = "1")]
    pairs: Vec<StoredPair>,
}

impl fmt::Debug for StoredPairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} stored key pairs>", self.pairs.len())
    }
}

impl fmt::Debug for StoredPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredPair")
            .field("name", &self.name)
            .field("digest", &self.digest())
            .finish_non_exhaustive()
    }
}

impl StoredPair {
    /// Creates an unencrypted stored pair.
    pub fn clear(pair: KeyPair) -> Self {
        let KeyPair {
            name,
            certificate_chain,
            private_key,
            ocsp_staple,
        } = pair;
        Self {
            name,
            certificate_chain,
            private_key,
            ocsp_staple,
            sealed: Vec::new(),
            digest: String::new(),
        }
    }

    /// Creates an encrypted stored pair. `salt` must be random.
    pub fn sealed(pair: &KeyPair, key: &SealingKey, salt: [u8; SALT]) -> Result<Self, AtRestError> {
        let place = place(&pair.name, &pair.certificate_chain);
        Ok(Self {
            name: pair.name.clone(),
            certificate_chain: pair.certificate_chain.clone(),
            private_key: Vec::new(),
            sealed: key.seal(&pair.private_key, &place, salt)?,
            digest: pair.digest(),
            ocsp_staple: pair.ocsp_staple.clone(),
        })
    }

    /// Returns the pair's digest without decrypting the private key.
    pub fn digest(&self) -> String {
        if self.digest.is_empty() {
            self.in_clear().digest()
        } else {
            self.digest.clone()
        }
    }

    /// Returns true if the private key is encrypted with `key`, or unencrypted if `key` is `None`.
    pub fn is_sealed_with(&self, key: Option<&SealingKey>) -> bool {
        match key {
            Some(key) => is_sealed_with(&self.sealed, key),
            None => self.sealed.is_empty(),
        }
    }

    /// Returns the pair, decrypted with one of these keys if necessary.
    pub fn open<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k SealingKey>,
    ) -> Result<KeyPair, AtRestError> {
        if self.sealed.is_empty() {
            return Ok(self.in_clear());
        }
        let place = place(&self.name, &self.certificate_chain);
        let private_key = open(&self.sealed, &place, keys)?;
        let pair = KeyPair {
            name: self.name.clone(),
            certificate_chain: self.certificate_chain.clone(),
            private_key,
            ocsp_staple: self.ocsp_staple.clone(),
        };
        if pair.digest() != self.digest {
            return Err(AtRestError::Damaged);
        }
        Ok(pair)
    }

    /// Returns the pair, with an empty private key if it is encrypted.
    pub fn in_clear(&self) -> KeyPair {
        KeyPair {
            name: self.name.clone(),
            certificate_chain: self.certificate_chain.clone(),
            private_key: self.private_key.clone(),
            ocsp_staple: self.ocsp_staple.clone(),
        }
    }
}

fn place(name: &str, chain: &[u8]) -> Vec<u8> {
    [b"pair\n", name.as_bytes(), b"\n", &Sha256::digest(chain)].concat()
}

/// Encodes stored pairs. Adds a prefix to sealed pairs, so that agents without support for sealing
/// reject them.
pub fn encode(pairs: Vec<StoredPair>) -> Vec<u8> {
    let is_clear = pairs.iter().all(|pair| pair.sealed.is_empty());
    let mut bytes = if is_clear {
        Vec::new()
    } else {
        DOMAIN.to_vec()
    };
    bytes.extend(StoredPairs { pairs }.encode_to_vec());
    bytes
}

/// Decodes stored pairs. Also accepts the unencrypted output of [`crate::keys::encode`].
pub fn decode(bytes: &[u8]) -> Result<Vec<StoredPair>, BoundsError> {
    let bytes = bytes.strip_prefix(DOMAIN).unwrap_or(bytes);
    let (stored, _) = bounds::decode::<StoredPairs>(&SHAPE, bytes, 2 * MAX_DECODED_BYTES)?;
    Ok(stored.pairs)
}

static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
    let text = |number| {
        let (of, repeated) = (FieldKind::Text, false);
        (number, Field { of, repeated })
    };
    let fields = [text(1), text(2), text(3), text(4), text(5), text(6)];
    let pair = Shape::new("StoredPair", size_of::<StoredPair>(), fields);
    let (of, repeated) = (FieldKind::Message(Arc::new(pair)), true);
    Shape::new(
        "StoredPairs",
        size_of::<StoredPairs>(),
        [(1, Field { of, repeated })],
    )
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    fn pair() -> KeyPair {
        KeyPair {
            name: "Secret/default/cert".to_owned(),
            certificate_chain: b"public".to_vec(),
            private_key: b"very private".to_vec(),
            ocsp_staple: b"public, too".to_vec(),
        }
    }

    fn key(seed: u8) -> SealingKey {
        SealingKey::from_random([seed; 32])
    }

    #[test]
    fn sealed_pair_opens_only_with_host_key() {
        let stored = StoredPair::sealed(&pair(), &key(1), [9; 32]).unwrap();
        let bytes = encode(vec![stored]);
        assert!(!bytes.windows(12).any(|bytes| bytes == b"very private"));
        assert!(keys::decode(&bytes).is_err());
        let [found] = &decode(&bytes).unwrap()[..] else {
            panic!("one pair");
        };
        assert_eq!(found.open([&key(2), &key(1)]).unwrap(), pair());
        assert_eq!(found.digest(), pair().digest());
        assert_eq!(found.in_clear().certificate_chain, b"public");
        assert!(found.is_sealed_with(Some(&key(1))) && !found.is_sealed_with(Some(&key(2))));
        let error = found.open([&key(2)]).unwrap_err();
        let id = key(1).id();
        assert_eq!(error, AtRestError::OtherKey { id });
        assert!(!format!("{found:?}").contains("private"));
    }

    #[test]
    fn altered_or_renamed_sealed_pair_is_refused() {
        let stored = StoredPair::sealed(&pair(), &key(1), [9; 32]).unwrap();
        for place in 0..stored.sealed.len() {
            let mut changed = stored.clone();
            changed.sealed[place] ^= 1;
            assert!(changed.open([&key(1)]).is_err(), "byte {place}");
        }
        let renamed = StoredPair {
            name: "Secret/default/other".to_owned(),
            ..stored.clone()
        };
        assert_eq!(renamed.open([&key(1)]), Err(AtRestError::Damaged));
        let other_chain = StoredPair {
            certificate_chain: b"another".to_vec(),
            ..stored
        };
        assert_eq!(other_chain.open([&key(1)]), Err(AtRestError::Damaged));
    }

    #[test]
    fn cleartext_pairs_come_from_older_agents() {
        let [found] = &decode(&keys::encode(&[pair()])).unwrap()[..] else {
            panic!("one pair");
        };
        assert!(found.is_sealed_with(None));
        assert_eq!(found.open([]).unwrap(), pair());
        assert_eq!(found.digest(), pair().digest());
        let again = encode(vec![StoredPair::clear(pair())]);
        assert_eq!(keys::decode(&again).unwrap(), [pair()]);
    }

    #[test]
    fn sealing_key_reads_back_and_typos_are_refused() {
        let stored = key(7).stored();
        assert_eq!(SealingKey::parse(&stored).unwrap(), key(7));
        for place in 0..stored.len() - 1 {
            let mut changed = stored.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(SealingKey::parse(&changed).is_err(), "{changed}");
        }
        assert!(!format!("{:?}", key(7)).contains(stored.trim_end().trim_start_matches(PREFIX)));
    }
}
