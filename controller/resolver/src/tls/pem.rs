//! Reads PEM and writes its canonical form.
//!
//! Envoy gets only the canonical form, in which equal contents have equal bytes. Errors never quote
//! the input.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::{Error, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use crate::syntax::limits::{MAX_PEM_BYTES, MAX_PEM_CERTIFICATES, MAX_PEM_LISTS};

/// Obsolete labels. In sections with the second label, data after the certificate is ignored.
const OLD_LABELS: [&str; 2] = [" X509 CERTIFICATE-----", " TRUSTED CERTIFICATE-----"];

/// Label of a section, its description, and the end of the error message: the remedy.
type UnexpectedSection = (&'static str, &'static str, &'static str);

const CERTIFICATE: UnexpectedSection = ("-----BEGIN CERTIFICATE-----", "a certificate", "");
const NO_CERTIFICATES: [UnexpectedSection; 3] = [
    ("CERTIFICATE REQUEST-----", "a certificate request", ""),
    (
        "-----BEGIN PKCS7-----",
        "PKCS#7",
        "; convert it to PEM (openssl pkcs7 -print_certs)",
    ),
    ("PRIVATE KEY-----", "a private key", ""),
];
const NO_KEYS: [UnexpectedSection; 2] = [
    (
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "a key in OpenSSH format",
        "; convert it to PEM (ssh-keygen -p -m PKCS8)",
    ),
    CERTIFICATE,
];

/// Fails if `pem` contains no certificate.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = text(pem)?;
    let found = sections(&pem, MAX_PEM_CERTIFICATES, "certificates")?;
    if found.is_empty() {
        return Err(missing("PEM certificate", &pem, &NO_CERTIFICATES));
    }
    Ok(found)
}

/// Fails if `pem` contains no revocation list.
pub(crate) fn revocation_lists(
    pem: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let pem = text(pem)?;
    let found = sections(&pem, MAX_PEM_LISTS, "revocation lists")?;
    if found.is_empty() {
        let expected = "PEM revocation list (X509 CRL)";
        return Err(missing(expected, &pem, &[CERTIFICATE]));
    }
    Ok(found)
}

fn sections<T: PemObject>(pem: &[u8], most: usize, plural: &str) -> Result<Vec<T>, String> {
    let mut found = Vec::new();
    for item in sesame_proto::pem::read::<T>(pem) {
        let item = item.map_err(|why| broken(&why))?;
        if found.len() == most {
            return Err(format!("contains more than {most} {plural}"));
        }
        found.push(item);
    }
    Ok(found)
}

/// Returns the first private key.
pub(crate) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let pem = text(pem)?;
    let has = |marker: &[u8]| pem.windows(marker.len()).any(|part| part == marker);
    if has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(b"Proc-Type: 4,ENCRYPTED") {
        return Err(
            "is encrypted with a password, which Sesame cannot enter; store the key without one \
            (openssl pkey)"
                .to_owned(),
        );
    }
    sesame_proto::pem::read_first(&pem).map_err(|why| match why {
        Error::NoItemsFound
            if has(b"PRIVATE KEY-----") && !has(b"-----BEGIN OPENSSH PRIVATE KEY-----") =>
        {
            "contains a private key of a type that TLS does not use".to_owned()
        }
        Error::NoItemsFound => missing("PEM private key", &pem, &NO_KEYS),
        why => broken(&why),
    })
}

/// Removes a byte order mark, and replaces obsolete labels.
fn text(pem: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if pem.len() > MAX_PEM_BYTES {
        return Err(format!(
            "is too large: {} bytes, maximum {MAX_PEM_BYTES}",
            pem.len()
        ));
    }
    let pem = pem.strip_prefix(b"\xef\xbb\xbf").unwrap_or(pem);
    // Replacing invalid UTF-8 is safe, because a PEM section that contains it fails to parse
    // anyway.
    let text = String::from_utf8_lossy(pem);
    if !OLD_LABELS.iter().any(|label| text.contains(label)) {
        return Ok(Cow::Borrowed(pem));
    }
    let renamed = OLD_LABELS.iter().fold(text.into_owned(), |text, label| {
        text.replace(label, " CERTIFICATE-----")
    });
    Ok(Cow::Owned(renamed.into_bytes()))
}

/// Returns an error message, which names the content if it is recognized.
fn missing(expected: &str, text: &[u8], sections: &[UnexpectedSection]) -> String {
    match recognize(text, sections) {
        Some((description, remedy)) => format!("contains {description}, not a {expected}{remedy}"),
        None => format!("contains no {expected}"),
    }
}

/// Returns a description of the content, and the end of the error message.
fn recognize(text: &[u8], sections: &[UnexpectedSection]) -> Option<(&'static str, &'static str)> {
    let has = |marker: &str| {
        let marker = marker.as_bytes();
        text.windows(marker.len()).any(|part| part == marker)
    };
    if text.starts_with(b"LS0tLS1CRUdJTi") {
        return Some((
            "base64 of PEM",
            ": it was encoded twice (under data, PEM is encoded once; under stringData, not at all)",
        ));
    }
    if text.starts_with(&[0x30, 0x81]) || text.starts_with(&[0x30, 0x82]) {
        return Some((
            "binary data, such as DER or PKCS#12",
            "; convert it to PEM (openssl x509, openssl pkey or openssl pkcs12)",
        ));
    }
    if text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff]) {
        return Some(("text in UTF-16", "; store it as ASCII"));
    }
    let &(_, description, remedy) = sections.iter().find(|(label, ..)| has(label))?;
    Some((description, remedy))
}

/// Never quotes the input.
fn broken(why: &Error) -> String {
    match why {
        Error::MissingSectionEnd { .. } => {
            "is truncated, or its line breaks are missing: a PEM section has no END line".to_owned()
        }
        Error::Base64Decode(_) => "has a PEM section that is not base64".to_owned(),
        _ => "is not valid PEM".to_owned(),
    }
}

pub(crate) fn encode_certificates(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        encode("CERTIFICATE", certificate, &mut text);
    }
    text
}

pub(crate) fn encode_revocation_list(list: &CertificateRevocationListDer<'_>) -> String {
    let mut text = String::new();
    encode("X509 CRL", list, &mut text);
    text
}

pub(crate) fn encode_private_key(key: &PrivateKeyDer<'_>) -> String {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    let mut text = String::new();
    encode(label, key.secret_der(), &mut text);
    text
}

/// Wraps lines at 64 characters (RFC 7468).
fn encode(label: &str, der: &[u8], text: &mut String) {
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    for line in der.chunks(48) {
        STANDARD.encode_string(line, text);
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
}
