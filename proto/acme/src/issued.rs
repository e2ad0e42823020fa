//! Checks issued certificates before they replace anything, and reads their validity.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use sesame_kinds::api::NamespacedName;
use sesame_proto::digest::sha256_of_all;
use sesame_proto::pem;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Maximum size of a chain in bytes.
pub const MAX_CHAIN_BYTES: usize = 128 * 1024;

/// A certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedPair {
    /// The certificate, followed by its issuers.
    pub chain: String,
    /// The private key.
    pub key: String,
}

impl fmt::Debug for IssuedPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedPair").finish_non_exhaustive()
    }
}

/// Facts about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedFacts {
    /// Start of the validity.
    pub not_before: Timestamp,
    /// End of the validity.
    pub not_after: Timestamp,
    /// DNS names.
    pub hostnames: BTreeSet<String>,
}

/// Why an issued certificate is unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssuedError {
    /// The chain is too long, or not PEM.
    Malformed,
    /// The certificate is for another key.
    OtherKey,
    /// The certificate lacks a hostname.
    Lacks(String),
    /// The certificate has expired.
    Expired(Timestamp),
}

impl fmt::Display for IssuedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => write!(
                f,
                "the CA sent a malformed certificate chain; expected PEM of at most \
                 {MAX_CHAIN_BYTES} bytes"
            ),
            Self::OtherKey => f.write_str("the CA sent a certificate for another key"),
            Self::Lacks(name) => write!(f, "the CA sent a certificate without the name {name:?}"),
            Self::Expired(time) => write!(
                f,
                "the CA sent a certificate that expired at {time}; check this host's clock"
            ),
        }
    }
}

impl std::error::Error for IssuedError {}

impl IssuedFacts {
    /// Reads the first certificate of a chain.
    pub fn read(chain: &[u8]) -> Result<Self, IssuedError> {
        with_leaf(chain, |leaf| {
            let time =
                |seconds| Timestamp::from_second(seconds).map_err(|_| IssuedError::Malformed);
            let names = leaf.subject_alternative_name();
            let names = names.map_err(|_| IssuedError::Malformed)?;
            let names = names.iter().flat_map(|names| &names.value.general_names);
            let dns = names.filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            });
            Ok(Self {
                not_before: time(leaf.validity().not_before.timestamp())?,
                not_after: time(leaf.validity().not_after.timestamp())?,
                hostnames: dns.collect(),
            })
        })
    }

    /// Returns the first hostname that the certificate lacks. A wildcard does not count as the
    /// hostnames that it covers, so that each hostname's owner is validated.
    pub fn lacks<'h>(&self, hostnames: &'h BTreeSet<String>) -> Option<&'h String> {
        hostnames
            .iter()
            .find(|name| !self.hostnames.contains(*name))
    }
}

impl IssuedPair {
    /// Checks that the certificate has the hostnames and the public key (a DER-encoded
    /// SubjectPublicKeyInfo), and is still valid.
    pub fn check(
        &self,
        hostnames: &BTreeSet<String>,
        public_key: &[u8],
        now: Timestamp,
    ) -> Result<IssuedFacts, IssuedError> {
        let facts = IssuedFacts::read(self.chain.as_bytes())?;
        let is_same = with_leaf(self.chain.as_bytes(), |leaf| {
            Ok(leaf.tbs_certificate.subject_pki.raw == public_key)
        })?;
        if !is_same {
            return Err(IssuedError::OtherKey);
        }
        if let Some(name) = facts.lacks(hostnames) {
            return Err(IssuedError::Lacks(name.clone()));
        }
        if facts.not_after <= now {
            return Err(IssuedError::Expired(facts.not_after));
        }
        Ok(facts)
    }
}

/// Identifies the written content of a Secret. Labels and annotations survive edits of the data, and
/// copies under another name.
pub fn issued_digest(secret: &NamespacedName, chain: &[u8]) -> String {
    sha256_of_all(&[secret.to_string().as_bytes(), b"\n", chain])
}

fn with_leaf<T>(
    chain: &[u8],
    read: impl FnOnce(&X509Certificate<'_>) -> Result<T, IssuedError>,
) -> Result<T, IssuedError> {
    if chain.len() > MAX_CHAIN_BYTES {
        return Err(IssuedError::Malformed);
    }
    let leaf = pem::read_first::<CertificateDer<'_>>(chain).map_err(|_| IssuedError::Malformed)?;
    let (_, leaf) = X509Certificate::from_der(&leaf).map_err(|_| IssuedError::Malformed)?;
    read(&leaf)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};

    use super::*;

    fn issued(names: &[&str]) -> (IssuedPair, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap();
        let chain = certificate.self_signed(&key).unwrap().pem();
        let pair = IssuedPair {
            chain,
            key: key.serialize_pem(),
        };
        (pair, key.subject_public_key_info())
    }

    #[test]
    fn issued_pair_must_have_names_and_key() {
        let (pair, key) = issued(&["a.example.com", "*.b.example.com"]);
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let check = |wanted: &[&str], key: &[u8]| pair.check(&names(wanted), key, now).map(drop);
        assert_eq!(check(&["a.example.com"], &key), Ok(()));
        assert_eq!(check(&["*.b.example.com"], &key), Ok(()));
        let lacking = "x.b.example.com";
        let lacks = IssuedError::Lacks(lacking.to_owned());
        assert_eq!(check(&[lacking], &key), Err(lacks));
        let (_, other) = issued(&["a.example.com"]);
        assert_eq!(
            check(&["a.example.com"], &other),
            Err(IssuedError::OtherKey)
        );
        assert!(!format!("{pair:?}").contains("PRIVATE"));
    }

    #[test]
    fn digest_depends_on_name_and_chain() {
        let name = |namespace| NamespacedName::new(namespace, "tls");
        let digest = issued_digest(&name("shop"), b"chain");
        assert_eq!(digest, issued_digest(&name("shop"), b"chain"));
        assert_ne!(digest, issued_digest(&name("shop"), b"edited"));
        assert_ne!(digest, issued_digest(&name("copied"), b"chain"));
    }

    #[test]
    fn malformed_chains_are_refused() {
        for chain in [Vec::new(), b"x".to_vec(), vec![b'-'; MAX_CHAIN_BYTES + 1]] {
            assert_eq!(IssuedFacts::read(&chain), Err(IssuedError::Malformed));
        }
    }
}
