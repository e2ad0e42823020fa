//! Private keys in a bundle, encrypted for certain hosts.
//!
//! A random content key encrypts the key pairs. HPKE (RFC 9180: X25519, HKDF-SHA256,
//! ChaCha20-Poly1305) encrypts the content key for each host. Never print a host's private key, and
//! never let it leave the host.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable as _, Kem as _, OpModeR, OpModeS, Serializable as _};
use prost::Message as _;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use sha2::{Digest as _, Sha256};

use crate::bounds;
use crate::keys::{self, KeyPair};
use crate::schema::{SealedKey, SealedKeys};

/// Domain separator, so that data from other programs is invalid here.
const DOMAIN: &[u8] = b"sesame bundle keys v1\n";
const HOST_KEY_PREFIX: &str = "sesame-host-";
const IDENTITY_PREFIX: &str = "SESAME-HOST-PRIVATE-";
/// Length of the checksum that detects typos, in bytes.
const CHECKSUM: usize = 4;
const ID: usize = 8;
/// Maximum number of hosts per bundle.
pub const MAX_HOSTS: usize = 10_000;

type Kem = X25519HkdfSha256;

/// A host's public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostKey([u8; 32]);

/// A host's private key.
#[derive(Clone)]
pub struct HostIdentity([u8; 32]);

/// Error when sealing or opening keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Not a public key.
    #[error(
        "{given:?} is not a host's public key: expected {HOST_KEY_PREFIX} and 48 characters, as \
        `sesame-agent identity` prints it"
    )]
    HostKey {
        /// Rejected text.
        given: String,
    },
    /// Not a valid private key.
    #[error("missing or malformed host private key")]
    Identity,
    /// Too many hosts.
    #[error("keys for {found} hosts; at most {MAX_HOSTS} are allowed in one bundle")]
    TooManyHosts {
        /// Number of hosts.
        found: usize,
    },
    /// The keys are sealed only for other hosts.
    #[error(
        "its keys are for other hosts ({hosts}), not for this host; create it again with \
        `--recipient {this}`"
    )]
    OtherHosts {
        /// Number of hosts that can open the keys.
        hosts: usize,
        /// This host's public key.
        this: HostKey,
    },
    /// The keys are damaged, or sealed for another Gateway or sequence number.
    #[error("its keys cannot be decrypted: {0}")]
    Damaged(&'static str),
}

impl HostKey {
    fn id(&self) -> [u8; ID] {
        let mut id = [0; ID];
        id.copy_from_slice(&Sha256::digest(self.0)[..ID]);
        id
    }
}

impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HOST_KEY_PREFIX}{}", encode(&self.0))
    }
}

impl FromStr for HostKey {
    type Err = SealError;

    fn from_str(text: &str) -> Result<Self, SealError> {
        let key = text.strip_prefix(HOST_KEY_PREFIX).and_then(decode);
        // Reject low-order keys, because their shared secret is the same for all hosts.
        let usable = |key: &[u8; 32]| <Kem as hpke::Kem>::PublicKey::from_bytes(key).is_ok();
        key.filter(usable)
            .filter(|key| *key != [0; 32])
            .map(Self)
            .ok_or_else(|| SealError::HostKey {
                given: text.chars().take(100).collect(),
            })
    }
}

impl HostIdentity {
    /// Creates an identity from random bytes.
    pub fn from_random(random: [u8; 32]) -> Self {
        let (private, _) = Kem::derive_keypair(&random);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(&private.to_bytes());
        Self(bytes)
    }

    /// Parses the format of [`HostIdentity::stored`].
    pub fn parse(stored: &str) -> Result<Self, SealError> {
        let key = stored.trim_end().strip_prefix(IDENTITY_PREFIX);
        key.and_then(decode).map(Self).ok_or(SealError::Identity)
    }

    /// Returns the identity as a string, which the caller must protect.
    pub fn stored(&self) -> String {
        format!("{IDENTITY_PREFIX}{}\n", encode(&self.0))
    }

    /// Returns the public key.
    pub fn public(&self) -> HostKey {
        let mut public = [0; 32];
        if let Ok(private) = self.private() {
            public.copy_from_slice(&Kem::sk_to_pk(&private).to_bytes());
        }
        HostKey(public)
    }

    fn private(&self) -> Result<<Kem as hpke::Kem>::PrivateKey, SealError> {
        <Kem as hpke::Kem>::PrivateKey::from_bytes(&self.0).map_err(|_| SealError::Identity)
    }
}

impl fmt::Debug for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostIdentity({})", self.public())
    }
}

/// Encrypts key pairs for these hosts, bound to the Gateway and sequence number. `random` must fill
/// its argument with random bytes.
pub fn seal(
    pairs: &[KeyPair],
    hosts: &[HostKey],
    gateway: &str,
    sequence: u64,
    random: &mut dyn FnMut(&mut [u8]),
) -> Result<Vec<u8>, SealError> {
    let mut hosts = hosts.to_vec();
    hosts.sort_unstable();
    hosts.dedup();
    if hosts.len() > MAX_HOSTS {
        return Err(SealError::TooManyHosts { found: hosts.len() });
    }
    let mut key = [0; 32];
    random(&mut key);
    let bound = bound_to(gateway, sequence);
    let mut content = keys::encode(pairs);
    let failed = |_| SealError::Damaged("the keys cannot be encrypted");
    cipher(&key)?
        .seal_in_place_append_tag(nonce(), Aad::from(&bound), &mut content)
        .map_err(failed)?;
    let mut sealed = SealedKeys {
        hosts: Vec::new(),
        content,
    };
    for host in hosts {
        let public = <Kem as hpke::Kem>::PublicKey::from_bytes(&host.0);
        let public = public.map_err(|_| SealError::Damaged("a host's key cannot be used"))?;
        let (encapsulated, key) =
            hpke::single_shot_seal_with_rng::<ChaCha20Poly1305, HkdfSha256, Kem>(
                &OpModeS::Base,
                &public,
                DOMAIN,
                &key,
                &bound,
                &mut Random(random),
            )
            .map_err(|_| SealError::Damaged("a host's key cannot be used"))?;
        sealed.hosts.push(SealedKey {
            host: host.id().to_vec(),
            encapsulated: encapsulated.to_bytes().to_vec(),
            key,
        });
    }
    Ok(sealed.encode_to_vec())
}

/// Decrypts a bundle's key pairs, which are bound to its Gateway and sequence number.
pub fn open(
    sealed: &[u8],
    identity: &HostIdentity,
    gateway: &str,
    sequence: u64,
) -> Result<Vec<KeyPair>, SealError> {
    let sealed = decode_sealed(sealed)?;
    let public = identity.public();
    let ours = sealed.hosts.iter().find(|host| host.host == public.id());
    let ours = ours.ok_or(SealError::OtherHosts {
        hosts: sealed.hosts.len(),
        this: public,
    })?;
    let damaged = SealError::Damaged("the part for this host is damaged or from another bundle");
    let encapsulated = <Kem as hpke::Kem>::EncappedKey::from_bytes(&ours.encapsulated);
    let bound = bound_to(gateway, sequence);
    let key = hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, Kem>(
        &OpModeR::Base,
        &identity.private()?,
        &encapsulated.map_err(|_| damaged.clone())?,
        DOMAIN,
        &ours.key,
        &bound,
    )
    .map_err(|_| damaged.clone())?;
    let key: [u8; 32] = key.try_into().map_err(|_| damaged)?;
    let mut content = sealed.content;
    let content = cipher(&key)?
        .open_in_place(nonce(), Aad::from(&bound), &mut content)
        .map_err(|_| SealError::Damaged("the content is damaged or from another bundle"))?;
    keys::decode(content).map_err(|_| SealError::Damaged("the content is not a list of key pairs"))
}

/// Returns the number of hosts that can open the keys.
pub fn host_count(sealed: &[u8]) -> Result<usize, SealError> {
    Ok(decode_sealed(sealed)?.hosts.len())
}

/// Returns true if this host can open the keys.
pub fn is_sealed_to(sealed: &[u8], host: &HostKey) -> bool {
    let sealed = decode_sealed(sealed);
    sealed.is_ok_and(|sealed| sealed.hosts.iter().any(|one| one.host == host.id()))
}

fn decode_sealed(sealed: &[u8]) -> Result<SealedKeys, SealError> {
    let sealed = bounds::sealed_keys(sealed);
    let sealed = sealed.map_err(|_| SealError::Damaged("they are not sealed keys"))?;
    let found = sealed.hosts.len();
    if found > MAX_HOSTS {
        return Err(SealError::TooManyHosts { found });
    }
    Ok(sealed)
}

fn bound_to(gateway: &str, sequence: u64) -> Vec<u8> {
    [DOMAIN, &sequence.to_be_bytes(), gateway.as_bytes()].concat()
}

fn cipher(key: &[u8; 32]) -> Result<LessSafeKey, SealError> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key);
    let key = key.map_err(|_| SealError::Damaged("the key has the wrong length"))?;
    Ok(LessSafeKey::new(key))
}

/// A constant nonce is safe, because each content key encrypts only once.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn encode(key: &[u8; 32]) -> String {
    let checksum = Sha256::digest(key);
    URL_SAFE_NO_PAD.encode([&key[..], &checksum[..CHECKSUM]].concat())
}

fn decode(text: &str) -> Option<[u8; 32]> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (key, checksum) = bytes.split_first_chunk::<32>()?;
    (Sha256::digest(key)[..CHECKSUM] == *checksum).then_some(*key)
}

struct Random<'a>(&'a mut dyn FnMut(&mut [u8]));

impl hpke::rand_core::TryRng for Random<'_> {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        let mut bytes = [0; 4];
        (self.0)(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        let mut bytes = [0; 8];
        (self.0)(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        (self.0)(bytes);
        Ok(())
    }
}

impl hpke::rand_core::TryCryptoRng for Random<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAY: &str = "Gateway/default/edge";

    fn pair() -> KeyPair {
        KeyPair {
            name: "Secret/default/cert".to_owned(),
            certificate_chain: b"public".to_vec(),
            private_key: b"very private".to_vec(),
            ..KeyPair::default()
        }
    }

    fn counter() -> impl FnMut(&mut [u8]) {
        let mut next = 0u8;
        move |bytes| {
            for byte in bytes {
                next = next.wrapping_add(1);
                *byte = next;
            }
        }
    }

    #[test]
    fn only_chosen_hosts_can_open_sealed_keys() {
        let [one, two, other] = [1, 2, 3].map(|n| HostIdentity::from_random([n; 32]));
        let hosts = [one.public(), two.public()];
        let sealed = seal(&[pair()], &hosts, GATEWAY, 7, &mut counter()).unwrap();
        assert!(!sealed.windows(12).any(|bytes| bytes == b"very private"));
        for host in [&one, &two] {
            assert_eq!(open(&sealed, host, GATEWAY, 7).unwrap(), [pair()]);
            assert!(is_sealed_to(&sealed, &host.public()));
        }
        let error = open(&sealed, &other, GATEWAY, 7).unwrap_err();
        assert!(matches!(error, SealError::OtherHosts { hosts: 2, .. }));
        assert!(open(&sealed, &one, GATEWAY, 8).is_err());
        assert!(open(&sealed, &one, "Gateway/default/other", 7).is_err());
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            // A change to one host's entry affects only that host.
            if let Ok(found) = open(&changed, &one, GATEWAY, 7) {
                assert_eq!(found, [pair()], "byte {place}");
            }
        }
    }

    #[test]
    fn host_keys_read_back_and_typos_are_refused() {
        let identity = HostIdentity::from_random([9; 32]);
        let public = identity.public().to_string();
        assert_eq!(public.parse(), Ok(identity.public()));
        assert_eq!(public.len(), 60);
        let stored = HostIdentity::parse(&identity.stored()).unwrap();
        assert_eq!(stored.public(), identity.public());
        assert!(!format!("{identity:?}").contains(&encode(&identity.0)));
        for place in 0..public.len() {
            let mut changed = public.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(changed.parse::<HostKey>().is_err(), "{changed}");
        }
        let zeros = format!("{HOST_KEY_PREFIX}{}", encode(&[0; 32]));
        assert!(zeros.parse::<HostKey>().is_err());
        assert!(HostIdentity::parse(&public).is_err());
    }
}
