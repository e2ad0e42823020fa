//! Key pairs, which a snapshot refers to by digest but does not contain.
//!
//! Private keys must never appear in a log or an error, so `Debug` prints only the name and the
//! digest.

use std::fmt;
use std::sync::{Arc, LazyLock};

use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::bounds::{self, BoundsError, Field, FieldKind, Shape};
use crate::wire;

/// Maximum size of all key pairs of one Gateway, in bytes.
pub(crate) const MAX_DECODED_BYTES: u64 = 32 * 1024 * 1024;

/// A certificate chain with its private key, or session ticket keys.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct KeyPair {
    /// `Secret/namespace/name`, equal to `KeyRef.name`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// PEM certificates, leaf first.
    #[prost(bytes = "vec", tag = "2")]
    pub certificate_chain: Vec<u8>,
    /// PEM private key, or concatenated session ticket keys. The first ticket key encrypts new
    /// tickets.
    #[prost(bytes = "vec", tag = "3")]
    pub private_key: Vec<u8>,
    /// DER-encoded OCSP response for the leaf; empty if none. Stored pairs use the same field
    /// number.
    #[prost(bytes = "vec", tag = "6")]
    pub ocsp_staple: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct StoredKeys {
    #[prost(message, repeated, tag = "1")]
    pairs: Vec<KeyPair>,
}

impl fmt::Debug for StoredKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} key pairs>", self.pairs.len())
    }
}

impl KeyPair {
    /// Returns the SHA-256 in hex of all parts with their lengths. Omits a missing OCSP response.
    pub fn digest(&self) -> String {
        let Self {
            name: _,
            certificate_chain,
            private_key,
            ocsp_staple,
        } = self;
        let staple = Some(ocsp_staple).filter(|staple| !staple.is_empty());
        let mut hash = Sha256::new();
        for part in [certificate_chain, private_key].into_iter().chain(staple) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hex(&hash.finalize())
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair")
            .field("name", &self.name)
            .field("digest", &self.digest())
            .finish_non_exhaustive()
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// Encodes key pairs. The caller must protect the bytes.
pub fn encode(keys: &[KeyPair]) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::append_messages(PAIRS, keys, &mut bytes);
    bytes
}

/// Decodes the output of [`encode`].
pub fn decode(bytes: &[u8]) -> Result<Vec<KeyPair>, BoundsError> {
    let (keys, _) = bounds::decode::<StoredKeys>(&SHAPE, bytes, MAX_DECODED_BYTES)?;
    Ok(keys.pairs)
}

const PAIRS: u32 = 1;

static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
    let text = |number| {
        let (of, repeated) = (FieldKind::Text, false);
        (number, Field { of, repeated })
    };
    let pair = Shape::new(
        "KeyPair",
        size_of::<KeyPair>(),
        [text(1), text(2), text(3), text(6)],
    );
    let (of, repeated) = (FieldKind::Message(Arc::new(pair)), true);
    Shape::new(
        "StoredKeys",
        size_of::<StoredKeys>(),
        [(PAIRS, Field { of, repeated })],
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_keys_come_back_and_never_print() {
        let key = KeyPair {
            name: "Secret/default/cert".to_owned(),
            certificate_chain: b"public".to_vec(),
            private_key: b"private".to_vec(),
            ocsp_staple: b"staple".to_vec(),
        };
        let bytes = encode(std::slice::from_ref(&key));
        assert_eq!(
            decode(&bytes).unwrap().as_slice(),
            std::slice::from_ref(&key)
        );
        assert!(!format!("{key:?}").contains("private"));
        assert!(decode(b"\xff\xff").is_err());
    }

    #[test]
    fn empty_pairs_are_counted() {
        let error = decode(&b"\x0a\x00".repeat(1 << 20)).unwrap_err();
        assert!(matches!(error, BoundsError::TooMuch { .. }), "{error}");
    }
}
