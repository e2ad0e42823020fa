//! Facts about certificates and revocation lists, for display. Certificates are untrusted, so
//! strings are truncated and control characters replaced.

use std::net::IpAddr;

use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use sesame_proto::pem;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{CertificateRevocationList, FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Name};

/// Maximum text length, in characters.
const MAX_TEXT: usize = 256;
const MAX_NAMES: usize = 100;
/// Key types by object identifier.
const KEYS: [(&str, &str); 5] = [
    ("1.2.840.10045.3.1.7", "ECDSA P-256"),
    ("1.3.132.0.34", "ECDSA P-384"),
    ("1.3.132.0.35", "ECDSA P-521"),
    ("1.3.101.112", "Ed25519"),
    ("1.3.101.113", "Ed448"),
];

/// Facts about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Subject alternative names: DNS names, IP addresses and URIs.
    pub names: Vec<String>,
    /// Distinguished name of the subject.
    pub subject: String,
    /// Distinguished name of the issuer.
    pub issuer: String,
    /// Lower-case hexadecimal serial number, without leading zeros.
    pub serial: String,
    /// Start of validity, as a Unix timestamp.
    pub not_before: i64,
    /// End of validity, as a Unix timestamp.
    pub not_after: i64,
    /// Public key, such as `RSA 2048`.
    pub key: String,
}

impl CertificateFacts {
    /// Reads all certificates from PEM. Skips malformed certificates.
    pub fn from_pem(pem: &[u8]) -> Vec<Self> {
        pem::read::<CertificateDer<'_>>(pem)
            .into_iter()
            .filter_map(|der| Self::from_der(&der.ok()?))
            .collect()
    }

    /// Returns `None` if the certificate is malformed.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(Self {
            names: names(&certificate),
            subject: distinguished(certificate.subject()),
            issuer: distinguished(certificate.issuer()),
            serial: certificate.tbs_certificate.serial.to_str_radix(16),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            key: key(certificate.public_key()),
        })
    }
}

/// Facts about a revocation list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationListFacts {
    /// Distinguished name of the issuer.
    pub issuer: String,
    /// Time of issue, as a Unix timestamp.
    pub this_update: i64,
    /// Time of the next update, as a Unix timestamp. Optional in revocation lists.
    pub next_update: Option<i64>,
}

impl RevocationListFacts {
    /// Reads all revocation lists from PEM. Skips malformed lists.
    pub fn from_pem(pem: &[u8]) -> Vec<Self> {
        let lists = pem::read::<CertificateRevocationListDer<'_>>(pem);
        let facts = lists.into_iter().filter_map(|der| {
            let der = der.ok()?;
            let (_, list) = CertificateRevocationList::from_der(&der).ok()?;
            Some(Self {
                issuer: distinguished(list.issuer()),
                this_update: list.last_update().timestamp(),
                next_update: list.next_update().map(|time| time.timestamp()),
            })
        });
        facts.collect()
    }
}

/// Returns true if the certificate's subject is the issuer of the revocation list. Both arguments
/// are PEM.
pub fn issued_crl(certificate: &str, crl: &str) -> bool {
    let (Ok(certificate), Ok(crl)) = (
        pem::read_first::<CertificateDer<'_>>(certificate.as_bytes()),
        pem::read_first::<CertificateRevocationListDer<'_>>(crl.as_bytes()),
    ) else {
        return false;
    };
    let certificate = X509Certificate::from_der(&certificate);
    let crl = CertificateRevocationList::from_der(&crl);
    match (certificate, crl) {
        (Ok((_, certificate)), Ok((_, crl))) => {
            certificate.subject().as_raw() == crl.issuer().as_raw()
        }
        _ => false,
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let names = names.value.general_names.iter();
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) => Some(plain(name)),
            GeneralName::IPAddress(bytes) => {
                let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let sixteen = || <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
                Some(four.or_else(|_| sixteen()).ok()?.to_string())
            }
            _ => None,
        })
        .take(MAX_NAMES)
        .collect()
}

/// Formats the name for display, truncated and without control characters.
pub fn distinguished(name: &X509Name<'_>) -> String {
    plain(&name.to_string())
}

fn key(info: &SubjectPublicKeyInfo<'_>) -> String {
    if let Ok(PublicKey::RSA(public)) = info.parsed() {
        return format!("RSA {}", public.key_size());
    }
    let algorithm = info.algorithm.algorithm.to_id_string();
    let curve = info.algorithm.parameters.as_ref();
    let curve = curve.and_then(|parameters| Some(parameters.as_oid().ok()?.to_id_string()));
    let id = curve.unwrap_or(algorithm);
    let known = KEYS.iter().find(|(known, _)| *known == id);
    known.map_or(id, |(_, name)| (*name).to_owned())
}

/// Makes the string safe to print to a terminal.
fn plain(text: &str) -> String {
    let visible = |character: char| {
        if character.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            character
        }
    };
    text.chars().take(MAX_TEXT).map(visible).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn facts_are_read_from_certificate() {
        let names = ["a.test", "192.0.2.7", "2001:db8::7"].map(str::to_owned);
        let mut params = CertificateParams::new(names.to_vec()).expect("names");
        params
            .distinguished_name
            .push(DnType::CommonName, "a\u{1b}[2J");
        params.serial_number = Some(vec![0, 0x4e, 0x9a].into());
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let twice = format!("{pem}# text\n{pem}");
        let [facts, again] = &CertificateFacts::from_pem(twice.as_bytes())[..] else {
            panic!("two certificates");
        };
        assert_eq!(facts, again);
        assert_eq!(facts.names, names);
        assert_eq!(facts.subject, "CN=a\u{fffd}[2J");
        assert_eq!(facts.issuer, facts.subject);
        assert_eq!((&*facts.serial, &*facts.key), ("4e9a", "ECDSA P-256"));
        assert!(facts.not_before < facts.not_after);
        assert_eq!(CertificateFacts::from_pem(b"none"), []);
    }
}
