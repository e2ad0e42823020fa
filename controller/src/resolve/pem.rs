//! PEM in and out: what is read from a Secret or ConfigMap, and the canonical form that travels on.
//!
//! Only certificates and the one private key leave here, re-encoded, so nothing else that a file holds
//! reaches a proxy, and equal keys are equal bytes. Errors never quote the text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// More than any real chain or bundle; bounds the work that a hostile object can cause.
const MAX_BYTES: usize = 512 * 1024;
const MAX_CERTIFICATES: usize = 512;

/// All certificates of a PEM text, in order; at least one.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    if pem.len() > MAX_BYTES {
        return Err(format!(
            "has {} bytes; at most {MAX_BYTES} are read",
            pem.len()
        ));
    }
    let mut found = Vec::new();
    for item in CertificateDer::pem_slice_iter(pem) {
        let certificate = item.map_err(|_| "is not valid PEM".to_owned())?;
        if found.len() == MAX_CERTIFICATES {
            return Err(format!("holds more than {MAX_CERTIFICATES} certificates"));
        }
        found.push(certificate);
    }
    if found.is_empty() {
        return Err("holds no PEM certificate".to_owned());
    }
    Ok(found)
}

/// The first private key of a PEM text.
pub(super) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    if pem.len() > MAX_BYTES {
        return Err(format!(
            "has {} bytes; at most {MAX_BYTES} are read",
            pem.len()
        ));
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| "holds no PEM private key".to_owned())
}

/// Certificates as PEM, and nothing else.
pub(super) fn encode_certificates(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        encode("CERTIFICATE", certificate, &mut text);
    }
    text
}

/// A private key as PEM, under the label of its own encoding.
pub(super) fn encode_private_key(key: &PrivateKeyDer<'_>) -> String {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    let mut text = String::new();
    encode(label, key.secret_der(), &mut text);
    text
}

/// RFC 7468: lines of 64 characters.
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
