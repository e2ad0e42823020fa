//! Key pairs on their way to a proxy.
//!
//! They travel beside a snapshot, which names them by digest. Private bytes never reach a log or an error:
//! `Debug` prints the name and the digest only.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A certificate chain and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// `Secret/namespace/name`; equals `KeyRef.name`.
    pub name: String,
    /// PEM, leaf first.
    pub certificate_chain: Vec<u8>,
    /// PEM.
    pub private_key: Vec<u8>,
}

impl KeyPair {
    /// Hex SHA-256 over both parts with their lengths; equals `KeyRef.digest`.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for part in [&self.certificate_chain, &self.private_key] {
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

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
