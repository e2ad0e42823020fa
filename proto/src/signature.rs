//! Signatures of published content. Write access to the content must not be enough to reconfigure a
//! host.
//!
//! A signature covers the Gateway and the kind of content, so content cannot be used for another
//! purpose. An increasing stamp prevents replays. Several keys may sign, so that keys can be
//! rotated without interruption. A private key must never leave this module.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use sha2::{Digest as _, Sha256};

use crate::keys::hex;
use crate::pem;
use crate::salts::SaltKey;

mod threshold;

pub use self::threshold::{GoodSignatures, signers};

/// Domain separator, so that signatures for other programs are invalid here.
const DOMAIN: &[u8] = b"sesame snapshot signature v1\n";
/// Never published. Only its hash leaves this module.
const SALT_CONTEXT: &[u8] = b"sesame credential salts v1\n";
const VERSION: u8 = 1;
/// Maximum number of signing keys, and of trusted keys.
pub const MAX_KEYS: usize = 8;
const ID: usize = 8;
const SIGNATURE: usize = 64;
/// Prefix of every DER-encoded Ed25519 public key (RFC 8410).
const PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// The signed data, except the stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Gateway as `Gateway/namespace/name`.
    pub gateway: &'a str,
    /// Kind of content.
    pub piece: SignedPiece<'a>,
    /// Stored bytes.
    pub content: &'a [u8],
}

/// Kind of signed content, with other values that the signature covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedPiece<'a> {
    /// A manifest.
    Manifest {
        /// Fleet name; empty outside a cluster.
        fleet: &'a str,
        /// Number of Secrets with keys; 0 outside a cluster.
        key_secrets: usize,
    },
    /// An endpoint shard.
    Endpoints {
        /// Name of the shard's object or file.
        name: &'a str,
    },
    /// The signed part of a bundle, with the digests of all other parts.
    Bundle,
}

impl Statement<'_> {
    /// Different statements or stamps never result in the same bytes.
    fn message(&self, stamp: u64) -> Vec<u8> {
        let Self {
            gateway,
            piece,
            content,
        } = self;
        let (kind, name, key_secrets) = match piece {
            SignedPiece::Manifest { fleet, key_secrets } => (1, fleet, *key_secrets),
            SignedPiece::Endpoints { name } => (2, name, 0),
            SignedPiece::Bundle => (3, &"", 0),
        };
        let mut message = DOMAIN.to_vec();
        message.push(kind);
        for text in [gateway, name] {
            message.extend((text.len() as u64).to_be_bytes());
            message.extend(text.as_bytes());
        }
        message.extend((key_secrets as u64).to_be_bytes());
        message.extend(stamp.to_be_bytes());
        message.extend(Sha256::digest(content));
        message
    }
}

/// Error when reading keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No keys of the expected kind.
    #[error("contains no {expected}; {how}")]
    None {
        /// Expected kind of keys.
        expected: &'static str,
        /// Command that creates a key.
        how: &'static str,
    },
    /// Not an Ed25519 key.
    #[error("its key {number} is not an Ed25519 key; {how}")]
    NotEd25519 {
        /// Position of the key, from 1.
        number: usize,
        /// Command that creates a key.
        how: &'static str,
    },
    /// Too many keys.
    #[error("contains more than {MAX_KEYS} keys")]
    TooMany,
}

/// Why content is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Unsigned content.
    #[error("is not signed, but a trusted signature is required (--trusted-key)")]
    Missing,
    /// Malformed signatures.
    #[error("its signature is malformed ({length} bytes)")]
    Malformed {
        /// Length in bytes.
        length: usize,
    },
    /// No signing key is trusted.
    #[error("is signed by key {signers}, none of which is trusted here (trusted: {trusted})")]
    Stranger {
        /// Signing key identifiers.
        signers: String,
        /// Trusted key identifiers.
        trusted: String,
    },
    /// A trusted key's signature is not valid for this content.
    #[error("its signature by key {key} is for other content, another Gateway or another piece")]
    Wrong {
        /// Signing key identifier.
        key: String,
    },
    /// Too few trusted keys have signed.
    #[error(
        "has too few trusted signatures: {found} ({signers}), but {required} are required \
        (--require-signers)"
    )]
    TooFew {
        /// Number of trusted keys that have signed.
        found: usize,
        /// Identifiers of these keys.
        signers: String,
        /// Required number of keys.
        required: usize,
    },
    /// A later stamp has already been accepted.
    #[error("is older than the previously accepted version (stamp {found}, accepted {known})")]
    Older {
        /// Stamp of this content.
        found: u64,
        /// Accepted stamp.
        known: u64,
    },
}

/// A publisher's private keys.
pub struct SigningKeys(Vec<Ed25519KeyPair>);

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKeys({})", self.trusted().names())
    }
}

const PRIVATE_KEY_HINT: &str = "create one with `openssl genpkey -algorithm ed25519`";
const PUBLIC_KEY_HINT: &str = "extract it from the private key with `openssl pkey -in KEY -pubout`";

impl SigningKeys {
    /// Parses all PKCS#8 private keys in a PEM text.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let mut keys = Vec::new();
        for (index, der) in pem::read::<PrivatePkcs8KeyDer<'_>>(pem)
            .into_iter()
            .enumerate()
        {
            let number = index + 1;
            let refused = KeyError::NotEd25519 {
                number,
                how: PRIVATE_KEY_HINT,
            };
            let der = der.map_err(|_| refused.clone())?;
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der());
            keys.push(pair.map_err(|_| refused)?);
            if number > MAX_KEYS {
                return Err(KeyError::TooMany);
            }
        }
        if keys.is_empty() {
            return Err(KeyError::None {
                expected: "PEM private key (PKCS#8)",
                how: PRIVATE_KEY_HINT,
            });
        }
        Ok(Self(keys))
    }

    /// Returns the public keys.
    pub fn trusted(&self) -> TrustedKeys {
        let keys = self.0.iter().map(|pair| {
            let mut public = [0; 32];
            public.copy_from_slice(pair.public_key().as_ref());
            public
        });
        TrustedKeys(keys.collect())
    }

    /// Returns the key for the salts of what these keys sign. It is always the same for the same keys.
    pub fn salt_key(&self) -> SaltKey {
        let signatures = self.0.iter().map(|pair| pair.sign(SALT_CONTEXT));
        let mut hash = Sha256::new();
        for signature in signatures {
            hash.update(signature.as_ref());
        }
        SaltKey::new(hash.finalize().into())
    }

    /// Signs with each key, and returns the stored format.
    pub fn sign(&self, statement: &Statement<'_>, stamp: u64) -> Vec<u8> {
        let message = statement.message(stamp);
        let mut stored = vec![VERSION];
        stored.extend(stamp.to_be_bytes());
        for pair in &self.0 {
            stored.extend(id(pair.public_key().as_ref()));
            stored.extend(pair.sign(&message).as_ref());
        }
        stored
    }

    /// Adds the missing signatures by these keys. Existing signatures must cover the same statement
    /// and stamp.
    pub fn add_to(
        &self,
        statement: &Statement<'_>,
        stored: &[u8],
    ) -> Result<Vec<u8>, SignatureError> {
        let (stamp, before) = parse(stored)?;
        let message = statement.message(stamp);
        let mut all = stored.to_vec();
        for pair in &self.0 {
            let id = id(pair.public_key().as_ref());
            if before.iter().all(|(signer, _)| *signer != id) {
                all.extend(id);
                all.extend(pair.sign(&message).as_ref());
            }
        }
        parse(&all)?;
        Ok(all)
    }

    /// Returns the stamp if exactly these keys have signed and all signatures are valid.
    pub fn verify_all(&self, statement: &Statement<'_>, stored: &[u8]) -> Option<u64> {
        let (stamp, signatures) = parse(stored).ok()?;
        let good = self.sign(statement, stamp) == stored && signatures.len() == self.0.len();
        good.then_some(stamp)
    }
}

/// Public keys of trusted publishers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedKeys(Vec<[u8; 32]>);

impl TrustedKeys {
    /// Adds all public keys in a PEM text.
    pub fn add_pem(&mut self, pem: &[u8]) -> Result<(), KeyError> {
        let keys = pem::read::<SubjectPublicKeyInfoDer<'_>>(pem);
        let none = keys.is_empty();
        for (index, der) in keys.into_iter().enumerate() {
            let refused = KeyError::NotEd25519 {
                number: index + 1,
                how: PUBLIC_KEY_HINT,
            };
            let der = der.map_err(|_| refused.clone())?;
            let key = der.as_ref().strip_prefix(&PREFIX);
            let key = key.and_then(|key| key.try_into().ok()).ok_or(refused)?;
            if !self.0.contains(&key) {
                self.0.push(key);
            }
            if self.0.len() > MAX_KEYS {
                return Err(KeyError::TooMany);
            }
        }
        if none {
            return Err(KeyError::None {
                expected: "PEM public key",
                how: PUBLIC_KEY_HINT,
            });
        }
        Ok(())
    }

    /// Returns PEM texts for [`TrustedKeys::add_pem`], by key identifier.
    pub fn to_pem(&self) -> BTreeMap<String, String> {
        let pem = |key: &[u8; 32]| {
            let body = STANDARD.encode([&PREFIX[..], key].concat());
            format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n")
        };
        let keys = self.0.iter();
        keys.map(|key| (hex(&id(key)), pem(key))).collect()
    }

    /// Returns true if no key is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key identifiers for messages.
    pub fn names(&self) -> String {
        list(self.0.iter().map(|key| hex(&id(key))))
    }

    /// Verifies that a trusted key has signed, and returns the stamp.
    pub fn verify(
        &self,
        statement: &Statement<'_>,
        stored: Option<&[u8]>,
    ) -> Result<u64, SignatureError> {
        Ok(self.verify_by(1, statement, stored)?.stamp)
    }
}

/// Fails if a stamp is older than the last accepted stamp.
pub fn follows(found: u64, known: Option<u64>) -> Result<(), SignatureError> {
    match known {
        Some(known) if found < known => Err(SignatureError::Older { found, known }),
        _ => Ok(()),
    }
}

type Parsed<'a> = (u64, Vec<([u8; ID], &'a [u8])>);

fn parse(stored: &[u8]) -> Result<Parsed<'_>, SignatureError> {
    let malformed = SignatureError::Malformed {
        length: stored.len(),
    };
    let read = || {
        let (version, rest) = stored.split_first()?;
        let (stamp, rest) = rest.split_first_chunk::<8>()?;
        let each = rest.chunks_exact(ID + SIGNATURE);
        let whole = *version == VERSION && each.remainder().is_empty() && !rest.is_empty();
        if !whole || each.len() > MAX_KEYS {
            return None;
        }
        let signatures = each.filter_map(|one| one.split_first_chunk::<ID>());
        let signatures = signatures.map(|(id, signature)| (*id, signature));
        Some((u64::from_be_bytes(*stamp), signatures.collect()))
    };
    read().ok_or(malformed)
}

fn id(public: &[u8]) -> [u8; ID] {
    let digest = Sha256::digest(public);
    let mut id = [0; ID];
    id.copy_from_slice(&digest[..ID]);
    id
}

fn list(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `openssl genpkey -algorithm ed25519`. `PUBLIC` is from `openssl pkey -pubout`.
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
        -----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
        -----END PUBLIC KEY-----\n";
    const OTHER: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEIEzNCJsoXb2Wlk8vptbPp2xE6nuXazJ27Jqmp6w4pvW4\n\
        -----END PRIVATE KEY-----\n";

    /// From `openssl pkeyutl -sign -rawin`.
    const GOLDEN: &str = "01000000000102030421fe31dfa154a261d4adddaa5518887537f14bebc225f37c37621a315d8f3b1af20cd0322fa198\
        a92a9546f7ee6caa30ce5dbd1270b5b94716148ebb71d3c0523cc31d94df41b101";
    const GOLDEN_MESSAGE: &str = "736573616d6520736e617073686f74207369676e61747572652076310a010000000000000014476174657761792f6465\
        6661756c742f65646765000000000000000764656661756c740000000000000001000000000000000105b3abf2579a5e\
        b66403cd78be557fd860633a1fe2103c7642030defe32c657f";

    const MANIFEST: Statement<'_> = Statement {
        gateway: "Gateway/default/edge",
        piece: SignedPiece::Manifest {
            fleet: "default",
            key_secrets: 1,
        },
        content: b"manifest",
    };

    fn keys(pem: &[&str]) -> SigningKeys {
        SigningKeys::from_pem(pem.concat().as_bytes()).unwrap()
    }

    fn trusted(pem: &[&str]) -> TrustedKeys {
        keys(pem).trusted()
    }

    /// The signed bytes must never change, because hosts and controllers of different versions must
    /// agree on them.
    #[test]
    fn signature_bytes_are_stable() {
        let stored = keys(&[PRIVATE]).sign(&MANIFEST, 0x0102_0304);
        assert_eq!(hex(&MANIFEST.message(1)), GOLDEN_MESSAGE);
        assert_eq!(hex(&stored), GOLDEN);
        let mut public = TrustedKeys::default();
        public.add_pem(PUBLIC.as_bytes()).unwrap();
        assert_eq!(public, trusted(&[PRIVATE]));
        assert_eq!(public.verify(&MANIFEST, Some(&stored)), Ok(0x0102_0304));
    }

    #[test]
    fn altered_statement_does_not_verify() {
        let signer = keys(&[PRIVATE]);
        let stored = signer.sign(&MANIFEST, 7);
        let trusted = signer.trusted();
        let piece = |fleet, key_secrets| SignedPiece::Manifest { fleet, key_secrets };
        for other in [
            Statement {
                gateway: "Gateway/default/edg",
                ..MANIFEST
            },
            Statement {
                content: b"manifesT",
                ..MANIFEST
            },
            Statement {
                piece: piece("defaults", 1),
                ..MANIFEST
            },
            Statement {
                piece: piece("default", 2),
                ..MANIFEST
            },
            Statement {
                piece: SignedPiece::Endpoints { name: "default" },
                ..MANIFEST
            },
        ] {
            let error = trusted.verify(&other, Some(&stored)).unwrap_err();
            assert!(
                matches!(error, SignatureError::Wrong { .. }),
                "{other:?}: {error}"
            );
            assert_eq!(signer.verify_all(&other, &stored), None);
        }
        for place in 0..stored.len() {
            let mut other = stored.clone();
            other[place] ^= 1;
            assert!(
                trusted.verify(&MANIFEST, Some(&other)).is_err(),
                "byte {place}"
            );
        }
        for length in 0..stored.len() {
            let error = trusted
                .verify(&MANIFEST, Some(&stored[..length]))
                .unwrap_err();
            assert_eq!(error, SignatureError::Malformed { length });
        }
        assert_eq!(
            trusted.verify(&MANIFEST, None),
            Err(SignatureError::Missing)
        );
    }

    #[test]
    fn keys_are_replaced_with_overlap() {
        let (old, new) = (keys(&[PRIVATE]), keys(&[OTHER]));
        let both = keys(&[PRIVATE, OTHER]);
        let verify = |by: &TrustedKeys, stored: &[u8]| by.verify(&MANIFEST, Some(stored)).is_ok();
        let stored = both.sign(&MANIFEST, 1);
        assert!(verify(&old.trusted(), &stored) && verify(&new.trusted(), &stored));
        assert!(verify(&both.trusted(), &old.sign(&MANIFEST, 1)));
        assert!(verify(&both.trusted(), &new.sign(&MANIFEST, 1)));
        assert!(!verify(&new.trusted(), &old.sign(&MANIFEST, 1)));
        // Content must be signed again unless exactly the configured keys have signed it.
        assert_eq!(both.verify_all(&MANIFEST, &stored), Some(1));
        assert_eq!(both.verify_all(&MANIFEST, &old.sign(&MANIFEST, 1)), None);
        assert_eq!(new.verify_all(&MANIFEST, &stored), None);
        let error = new
            .trusted()
            .verify(&MANIFEST, Some(&old.sign(&MANIFEST, 1)));
        let text = error.unwrap_err().to_string();
        assert!(text.contains(&old.trusted().names()), "{text}");
    }

    #[test]
    fn invalid_keys_are_explained_and_secrets_never_printed() {
        for (pem, word) in [
            ("", "contains no PEM private key"),
            (PUBLIC, "contains no PEM private key"),
            (
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                "not an Ed25519 key",
            ),
        ] {
            let error = SigningKeys::from_pem(pem.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(word), "{error}");
        }
        for (pem, word) in [
            ("", "contains no PEM public key"),
            (PRIVATE, "contains no PEM public key"),
            (
                "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
                "not an Ed25519 key",
            ),
        ] {
            let error = TrustedKeys::default()
                .add_pem(pem.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(word), "{error}");
        }
        let mut twice = trusted(&[PRIVATE]);
        assert_eq!(twice.add_pem(PUBLIC.as_bytes()), Ok(()));
        assert_eq!(twice, trusted(&[PRIVATE]));
        let printed = format!("{:?}", keys(&[PRIVATE]));
        assert_eq!(printed, format!("SigningKeys({})", twice.names()));
    }

    #[test]
    fn signature_needs_required_number_of_distinct_keys() {
        let (one, other) = (keys(&[PRIVATE]), keys(&[OTHER]));
        let both = keys(&[PRIVATE, OTHER]).trusted();
        let by_one = one.sign(&MANIFEST, 3);
        let found = |required, stored: &[u8]| both.verify_by(required, &MANIFEST, Some(stored));
        assert_eq!(found(1, &by_one).unwrap().signers.len(), 1);
        let error = found(2, &by_one).unwrap_err();
        assert!(matches!(
            error,
            SignatureError::TooFew {
                found: 1,
                required: 2,
                ..
            }
        ));
        // A signature that occurs twice counts only once.
        let twice = [&by_one[..], &by_one[9..]].concat();
        assert!(found(2, &twice).is_err());
        assert_eq!(one.add_to(&MANIFEST, &by_one), Ok(by_one.clone()));
        let by_both = other.add_to(&MANIFEST, &by_one).unwrap();
        assert_eq!(found(2, &by_both).unwrap().stamp, 3);
        assert_eq!(signers(&by_both).len(), 2);
        let mut copy = TrustedKeys::default();
        for pem in both.to_pem().values() {
            copy.add_pem(pem.as_bytes()).unwrap();
        }
        assert_eq!(copy.to_pem(), both.to_pem());
    }

    #[test]
    fn older_stamp_is_refused() {
        assert_eq!(follows(5, None), Ok(()));
        assert_eq!(follows(5, Some(5)), Ok(()));
        assert_eq!(
            follows(4, Some(5)),
            Err(SignatureError::Older { found: 4, known: 5 })
        );
    }
}
