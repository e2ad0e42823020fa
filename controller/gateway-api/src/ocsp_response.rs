//! Parses OCSP responses: an authority's statements about its certificates, which servers staple to
//! those certificates.
//!
//! Reads only the fields that stapling depends on. Never checks the time, which the caller knows,
//! or the signature, which clients verify.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use x509_parser::asn1_rs::{Any, Class, FromDer as _, Tag};
use x509_parser::prelude::X509Certificate;

/// Maximum size of a response in bytes.
pub const MAX_BYTES: usize = 16 * 1024;

/// Object identifiers in DER: the only supported response type, and the hashes that identify an
/// issuer.
const BASIC: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
const SHA1_ID: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
const SHA256_ID: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
/// The extension by which a certificate requires a staple, and the value that Envoy looks for: a
/// list with only `status_request`.
const TLS_FEATURE: &str = "1.3.6.1.5.5.7.1.24";
const STATUS_REQUEST: &[u8] = &[0x30, 0x03, 0x02, 0x01, 0x05];

/// A response about one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcspResponse {
    /// Serial number of the certificate, without leading zeros.
    serial: Vec<u8>,
    issuer: IssuerHash,
    status: CertificateStatus,
    /// Start of the response's validity period, as a Unix timestamp.
    pub this_update: i64,
    /// End of the response's validity period, as a Unix timestamp.
    pub next_update: i64,
}

/// Identifies an issuer by a hash of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IssuerHash {
    algorithm: Vec<u8>,
    of_name: Vec<u8>,
}

/// The authority's statement about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CertificateStatus {
    Good,
    Revoked,
    Unknown,
}

/// The reason why a response is not stapled. Each message completes the sentence "tls.ocsp-staple
/// of Secret x …".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OcspResponseError {
    /// The response is longer than any real one.
    #[error("is too large: {0} bytes, maximum {MAX_BYTES}")]
    TooLong(usize),
    /// The response is text.
    #[error(
        "is text, such as PEM or base64; expected a binary OCSP response (DER), as openssl ocsp \
        -respout writes it"
    )]
    Text,
    /// The response is malformed.
    #[error("is not an OCSP response in DER; it may be truncated")]
    Malformed,
    /// The responder returned an error.
    #[error("is an OCSP error response (status {0}); query the responder again")]
    Unsuccessful(u8),
    /// Envoy accepts only responses about a single certificate.
    #[error("covers {0} certificates; Envoy requires exactly one")]
    NotOne(usize),
    /// The response has no expiry.
    #[error("has no nextUpdate, which Envoy requires")]
    NoEnd,
    /// The response is about another certificate.
    #[error("does not match the leaf certificate in tls.crt")]
    OtherCertificate,
    /// The authority does not vouch for the certificate.
    #[error("reports certificate status {0}; expected good")]
    NotGood(&'static str),
}

impl OcspResponse {
    /// Parses a response in DER.
    pub fn read(der: &[u8]) -> Result<Self, OcspResponseError> {
        if der.len() > MAX_BYTES {
            return Err(OcspResponseError::TooLong(der.len()));
        }
        if der.iter().all(u8::is_ascii) {
            return Err(OcspResponseError::Text);
        }
        let status = status(der).ok_or(OcspResponseError::Malformed)?;
        if status != 0 {
            return Err(OcspResponseError::Unsuccessful(status));
        }
        let responses = responses(der).ok_or(OcspResponseError::Malformed)?;
        let [response] = responses.as_slice() else {
            return Err(OcspResponseError::NotOne(responses.len()));
        };
        single(response).ok_or(OcspResponseError::Malformed)?
    }

    /// Checks that the response vouches for this certificate.
    pub fn check_for(&self, certificate: &X509Certificate<'_>) -> Result<(), OcspResponseError> {
        let Self {
            serial,
            issuer,
            status,
            this_update: _,
            next_update: _,
        } = self;
        let own = without_zeros(certificate.tbs_certificate.raw_serial());
        if *serial != own || !issuer.may_be(certificate.issuer().as_raw()) {
            return Err(OcspResponseError::OtherCertificate);
        }
        match status {
            CertificateStatus::Good => Ok(()),
            CertificateStatus::Revoked => Err(OcspResponseError::NotGood("revoked")),
            CertificateStatus::Unknown => {
                Err(OcspResponseError::NotGood("unknown to the authority"))
            }
        }
    }
}

impl IssuerHash {
    /// Returns true if this is the hash of the distinguished name, or if its algorithm is not
    /// supported here.
    fn may_be(&self, name: &[u8]) -> bool {
        let algorithm = match self.algorithm.as_slice() {
            SHA1_ID => &SHA1_FOR_LEGACY_USE_ONLY,
            SHA256_ID => &SHA256,
            _ => return true,
        };
        digest(algorithm, name).as_ref() == self.of_name
    }
}

/// Returns true if a certificate requires a staple. Envoy rejects such a certificate without a
/// staple.
pub fn is_demanded_by(certificate: &X509Certificate<'_>) -> bool {
    let mut extensions = certificate.extensions().iter();
    extensions.any(|it| it.oid.to_id_string() == TLS_FEATURE && it.value == STATUS_REQUEST)
}

/// A sequence of DER elements.
struct Elements<'d>(&'d [u8]);

impl<'d> Elements<'d> {
    fn next(&mut self) -> Option<Any<'d>> {
        let (rest, element) = Any::from_der(self.0).ok()?;
        self.0 = rest;
        Some(element)
    }

    /// Returns the content of the next element, which must have this tag.
    fn expect(&mut self, tag: Tag) -> Option<&'d [u8]> {
        let element = self.next()?;
        (element.class() == Class::Universal && element.tag() == tag).then_some(element.data)
    }

    /// Returns the content of the next element if it has this context-specific tag.
    fn optional(&mut self, number: u32) -> Option<&'d [u8]> {
        let (rest, element) = Any::from_der(self.0).ok()?;
        if element.class() != Class::ContextSpecific || element.tag() != Tag(number) {
            return None;
        }
        self.0 = rest;
        Some(element.data)
    }
}

/// Returns the response status, which is not the status of the certificate.
fn status(der: &[u8]) -> Option<u8> {
    let mut outer = Elements(der);
    let mut response = Elements(outer.expect(Tag::Sequence)?);
    match response.expect(Tag::Enumerated)? {
        [status] if outer.0.is_empty() => Some(*status),
        _ => None,
    }
}

/// Returns the contents of the individual responses.
fn responses(der: &[u8]) -> Option<Vec<&[u8]>> {
    let mut response = Elements(Elements(der).expect(Tag::Sequence)?);
    response.expect(Tag::Enumerated)?;
    let mut bytes = Elements(Elements(response.optional(0)?).expect(Tag::Sequence)?);
    if bytes.expect(Tag::Oid)? != BASIC {
        return None;
    }
    let basic = bytes.expect(Tag::OctetString)?;
    let mut basic = Elements(Elements(basic).expect(Tag::Sequence)?);
    let mut data = Elements(basic.expect(Tag::Sequence)?);
    // Skip the signature and its algorithm.
    basic.expect(Tag::Sequence)?;
    basic.expect(Tag::BitString)?;
    // Skip the version, which is omitted for version 1, and the responder.
    data.optional(0);
    data.next()?;
    data.expect(Tag::GeneralizedTime)?;
    let mut list = Elements(data.expect(Tag::Sequence)?);
    let mut found = Vec::new();
    while !list.0.is_empty() {
        found.push(list.expect(Tag::Sequence)?);
    }
    Some(found)
}

fn single(content: &[u8]) -> Option<Result<OcspResponse, OcspResponseError>> {
    let mut content = Elements(content);
    let mut id = Elements(content.expect(Tag::Sequence)?);
    let algorithm = Elements(id.expect(Tag::Sequence)?).expect(Tag::Oid)?;
    let of_name = id.expect(Tag::OctetString)?;
    id.expect(Tag::OctetString)?;
    let serial = without_zeros(id.expect(Tag::Integer)?).to_vec();
    let status = content.next()?;
    let status = match (status.class(), status.tag()) {
        (Class::ContextSpecific, Tag(0)) => CertificateStatus::Good,
        (Class::ContextSpecific, Tag(1)) => CertificateStatus::Revoked,
        (Class::ContextSpecific, Tag(2)) => CertificateStatus::Unknown,
        _ => return None,
    };
    let this_update = time(content.expect(Tag::GeneralizedTime)?)?;
    let Some(next_update) = content.optional(0) else {
        return Some(Err(OcspResponseError::NoEnd));
    };
    Some(Ok(OcspResponse {
        serial,
        issuer: IssuerHash {
            algorithm: algorithm.to_vec(),
            of_name: of_name.to_vec(),
        },
        status,
        this_update,
        next_update: time(Elements(next_update).expect(Tag::GeneralizedTime)?)?,
    }))
}

/// Parses a time such as `20260131235959Z` into a Unix timestamp.
fn time(text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i16> {
        std::str::from_utf8(digits.get(from..to)?)
            .ok()?
            .parse()
            .ok()
    };
    let part = |from: usize| i8::try_from(number(from, from + 2)?).ok();
    let (month, day) = (part(4)?, part(6)?);
    let time = DateTime::new(number(0, 4)?, month, day, part(8)?, part(10)?, part(12)?, 0).ok()?;
    let zoned = time.to_zoned(TimeZone::UTC).ok()?;
    Some(zoned.timestamp().as_second())
}

/// Strips leading zeros from a number.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or_default()
}
