//! OCSP responses of a test authority, in DER.

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certs::{Authority, Leaf};

const OID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const TIME: u8 = 0x18;

/// Revocation status in an OCSP response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OcspStatus {
    /// The certificate is valid.
    Good,
    /// The certificate is revoked.
    Revoked,
}

/// Returns a response that became valid at least an hour ago, and is valid until `end`.
pub fn response(authority: &Authority, leaf: &Leaf, status: OcspStatus, end: Timestamp) -> Vec<u8> {
    let start = end.min(Timestamp::now()) - jiff::SignedDuration::from_hours(1);
    let (_, issuer) = X509Certificate::from_der(authority.der()).expect("DER");
    let (_, certificate) = X509Certificate::from_der(&leaf.der).expect("DER");
    let hash = |bytes: &[u8]| element(OCTETS, digest(&SHA256, bytes).as_ref());
    let name = hash(issuer.subject().as_raw());
    let key = hash(&issuer.public_key().subject_public_key.data);
    let sha256 = element(OID, &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01]);
    let serial = element(0x02, certificate.tbs_certificate.raw_serial());
    let id = sequence(&[sequence(&[sha256]), name, key.clone(), serial]);
    let status = match status {
        OcspStatus::Good => element(0x80, &[]),
        OcspStatus::Revoked => element(0xa1, &time(start)),
    };
    let single = sequence(&[id, status, time(start), element(0xa0, &time(end))]);
    let data = sequence(&[element(0xa2, &key), time(start), sequence(&[single])]);
    let ecdsa = element(OID, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]);
    let signature = [&[0], &authority.sign_bytes(&data)[..]].concat();
    let basic = sequence(&[data, sequence(&[ecdsa]), element(0x03, &signature)]);
    let kind = element(OID, &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01]);
    let bytes = sequence(&[kind, element(OCTETS, &basic)]);
    sequence(&[element(0x0a, &[0]), element(0xa0, &bytes)])
}

fn time(at: Timestamp) -> Vec<u8> {
    let text = at.strftime("%Y%m%d%H%M%SZ").to_string();
    element(TIME, text.as_bytes())
}

fn sequence(elements: &[Vec<u8>]) -> Vec<u8> {
    element(SEQUENCE, &elements.concat())
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let high = u8::try_from(length >> 8).expect("a short element");
    let low = u8::try_from(length & 0xff).expect("a byte");
    let length = match length {
        0..=127 => vec![low],
        128..=255 => vec![0x81, low],
        _ => vec![0x82, high, low],
    };
    [&[tag], &length[..], content].concat()
}
