//! Checks whether a private key matches a certificate. Envoy decides which types and sizes to
//! accept. Errors never contain any part of a key.

use std::fmt;

use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
};
use rustls_pki_types::PrivateKeyDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";
const P521: &str = "1.3.132.0.35";

/// A client may support only one of these types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeyKind {
    Rsa,
    /// ECDSA and Ed25519 use the same cipher suites.
    EllipticCurve,
}

impl KeyKind {
    pub(crate) fn of(certificate: &SubjectPublicKeyInfo<'_>) -> Self {
        let algorithm = certificate.algorithm.algorithm.to_id_string();
        match ObjectIdentifier::new(&algorithm) {
            Ok(RSA | RSA_PSS) => Self::Rsa,
            _ => Self::EllipticCurve,
        }
    }

    /// Returns the part of cipher suite names that identifies the key type.
    pub(crate) fn in_suites(self) -> &'static str {
        match self {
            Self::Rsa => "-RSA-",
            Self::EllipticCurve => "-ECDSA-",
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rsa => "RSA",
            Self::EllipticCurve => "ECDSA or Ed25519",
        })
    }
}

/// Only the parts that determine the public key.
pub(crate) enum PrivateKey<'k> {
    Rsa {
        modulus: &'k [u8],
        exponent: &'k [u8],
    },
    Ec {
        scalar: &'k [u8],
        /// Some keys omit the public point.
        public: Option<&'k [u8]>,
    },
    Ed25519 {
        seed: &'k [u8],
    },
    Other,
}

impl<'k> PrivateKey<'k> {
    /// The error completes the sentence "tls.key …".
    pub(crate) fn read(key: &'k PrivateKeyDer<'_>) -> Result<Self, String> {
        match key {
            PrivateKeyDer::Pkcs1(key) => Self::rsa(key.secret_pkcs1_der()),
            PrivateKeyDer::Sec1(key) => Self::ec(key.secret_sec1_der()),
            PrivateKeyDer::Pkcs8(key) => {
                let info = PrivateKeyInfoRef::try_from(key.secret_pkcs8_der())
                    .map_err(|_| malformed("PKCS#8 (PRIVATE KEY)"))?;
                let inner = info.private_key.as_bytes();
                match info.algorithm.oid {
                    RSA => Self::rsa(inner),
                    EC => Self::ec(inner),
                    // The seed is in a nested octet string.
                    ED25519 => match inner {
                        [4, 32, seed @ ..] if seed.len() == 32 => Ok(Self::Ed25519 { seed }),
                        _ => Err(malformed("Ed25519")),
                    },
                    _ => Ok(Self::Other),
                }
            }
            _ => Ok(Self::Other),
        }
    }

    fn rsa(der: &'k [u8]) -> Result<Self, String> {
        let key = pkcs1::RsaPrivateKeyRef::try_from(der).map_err(|_| malformed("RSA"))?;
        Ok(Self::Rsa {
            modulus: key.modulus.as_bytes(),
            exponent: key.public_exponent.as_bytes(),
        })
    }

    fn ec(der: &'k [u8]) -> Result<Self, String> {
        let key = sec1::EcPrivateKey::try_from(der).map_err(|_| malformed("ECDSA"))?;
        Ok(Self::Ec {
            scalar: key.private_key,
            public: key.public_key,
        })
    }

    /// Also returns true for keys that cannot be checked here; Envoy rejects a mismatch.
    pub(crate) fn belongs_to(&self, certificate: &SubjectPublicKeyInfo<'_>) -> bool {
        let Ok(public) = certificate.parsed() else {
            return true;
        };
        match (self, public) {
            (Self::Rsa { modulus, exponent }, PublicKey::RSA(public)) => {
                number(modulus) == number(public.modulus)
                    && number(exponent) == number(public.exponent)
            }
            (
                Self::Ec {
                    public: Some(own), ..
                },
                PublicKey::EC(public),
            ) => same_point(own, public.data()),
            (Self::Ec { scalar, .. }, PublicKey::EC(public)) => {
                let curve = curve(certificate).unwrap_or_default();
                computes(&curve, scalar, public.data())
            }
            (Self::Ed25519 { seed }, PublicKey::Unknown(public)) => {
                certificate.algorithm.algorithm.to_id_string() == ED25519.to_string()
                    && Ed25519KeyPair::from_seed_and_public_key(seed, public).is_ok()
            }
            (Self::Other, _) => true,
            _ => false,
        }
    }
}

/// Returns the key's type if Envoy is known to reject it. Envoy's own error is not specific.
pub(crate) fn refused_kind(certificate: &SubjectPublicKeyInfo<'_>) -> Option<String> {
    let algorithm = certificate.algorithm.algorithm.to_id_string();
    let Ok(oid) = ObjectIdentifier::new(&algorithm) else {
        return Some(algorithm);
    };
    match (oid, certificate.parsed()) {
        (RSA, _) => short_rsa(certificate).map(|bits| format!("RSA of {bits} bits")),
        (EC, _) => match curve(certificate) {
            Some(curve) => {
                let known = [P256, P384, P521].contains(&curve.as_str());
                (!known).then(|| format!("ECDSA on the curve {curve}"))
            }
            None => Some("ECDSA with explicit curve parameters".to_owned()),
        },
        (ED25519, _) => None,
        (RSA_PSS, _) => Some("RSA for PSS only".to_owned()),
        _ => Some(format!("of the algorithm {algorithm}")),
    }
}

/// Returns the size in bits if it is below 2048.
pub(super) fn short_rsa(certificate: &SubjectPublicKeyInfo<'_>) -> Option<usize> {
    let Ok(PublicKey::RSA(public)) = certificate.parsed() else {
        return None;
    };
    let modulus = number(public.modulus);
    let zeros = modulus.first().map_or(0, |byte| byte.leading_zeros());
    let bits = (modulus.len() * 8).saturating_sub(zeros as usize);
    (bits < 2048).then_some(bits)
}

/// Returns `None` if the parameters are explicit.
fn curve(certificate: &SubjectPublicKeyInfo<'_>) -> Option<String> {
    let parameters = certificate.algorithm.parameters.as_ref()?;
    Some(parameters.as_oid().ok()?.to_id_string())
}

fn malformed(kind: &str) -> String {
    format!("contains a malformed {kind} private key; it may be truncated")
}

/// Strips leading zeros from a big-endian number.
fn number(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or_default()
}

/// Compares points of a curve, one of which may be compressed.
fn same_point(a: &[u8], b: &[u8]) -> bool {
    let halves = |point: &[u8]| -> Option<(Vec<u8>, u8)> {
        let (form, rest) = point.split_first()?;
        match form {
            2 | 3 => Some((rest.to_vec(), form & 1)),
            4 => {
                let (x, y) = rest.split_at_checked(rest.len() / 2)?;
                Some((x.to_vec(), y.last()? & 1))
            }
            _ => None,
        }
    };
    if a.first() == b.first() {
        return a == b;
    }
    halves(a).is_some_and(|a| Some(a) == halves(b))
}

/// Also returns true for compressed points and most curves, which cannot be checked here.
fn computes(curve: &str, scalar: &[u8], point: &[u8]) -> bool {
    let algorithm = match (curve, point.len()) {
        (P256, 65) => &ECDSA_P256_SHA256_ASN1_SIGNING,
        (P384, 97) => &ECDSA_P384_SHA384_ASN1_SIGNING,
        _ => return true,
    };
    #[allow(
        clippy::disallowed_types,
        reason = "ring requires a random source for signing; the check does not depend on it"
    )]
    let random = ring::rand::SystemRandom::new();
    EcdsaKeyPair::from_private_key_and_public_key(algorithm, scalar, point, &random).is_ok()
}
