//! Parses the fields of OCSP responses that stapling needs. Clients verify the signature, and the
//! caller checks the time.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use x509_parser::asn1_rs::{Any, Class, FromDer as _, Tag};
use x509_parser::prelude::X509Certificate;

/// Maximum size in bytes.
pub const MAX_BYTES: usize = 16 * 1024;

/// Object identifiers in DER: the only supported response type, and the hash algorithms.
const BASIC: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
const SHA1_ID: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
const SHA256_ID: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
/// The extension that requires a staple. Envoy recognizes the extension only if `status_request` is
/// its sole feature.
const TLS_FEATURE: &str = "1.3.6.1.5.5.7.1.24";
const STATUS_REQUEST: &[u8] = &[0x30, 0x03, 0x02, 0x01, 0x05];

/// An OCSP response for one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcspResponse {
    /// Without leading zeros.
    serial: Vec<u8>,
    issuer: IssuerHash,
    status: CertificateStatus,
    /// Start of validity, as a Unix timestamp.
    pub this_update: i64,
    /// End of validity, as a Unix timestamp.
    pub next_update: i64,
}

/// Hash of the issuer's distinguished name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IssuerHash {
    algorithm: Vec<u8>,
    name_hash: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CertificateStatus {
    Good,
    Revoked,
    Unknown,
}

/// Why a response is not stapled. Messages complete the sentence "tls.ocsp-staple of Secret x …".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OcspResponseError {
    /// Exceeds [`MAX_BYTES`].
    #[error("is too large: {0} bytes, maximum {MAX_BYTES}")]
    TooLong(usize),
    /// Text instead of DER.
    #[error(
        "is text, such as PEM or base64; expected a binary OCSP response (DER), as openssl ocsp \
        -respout writes it"
    )]
    Text,
    /// Malformed.
    #[error("is not an OCSP response in DER; it may be truncated")]
    Malformed,
    /// An error status instead of a certificate status.
    #[error("is an OCSP error response (status {0}); query the responder again")]
    Unsuccessful(u8),
    /// Envoy requires exactly one certificate.
    #[error("covers {0} certificates; Envoy requires exactly one")]
    NotOne(usize),
    /// The response has no end of validity.
    #[error("has no nextUpdate, which Envoy requires")]
    NoEnd,
    /// The response is for another certificate.
    #[error("does not match the leaf certificate in tls.crt")]
    OtherCertificate,
    /// The certificate is revoked, or its status is unknown.
    #[error("reports certificate status {0}; expected good")]
    NotGood(&'static str),
}

impl OcspResponse {
    /// Parses a DER-encoded response.
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

    /// Fails unless the response states that `certificate` is good.
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
    /// Also returns true for an unsupported hash algorithm, because the name cannot be checked.
    fn may_be(&self, name: &[u8]) -> bool {
        let algorithm = match self.algorithm.as_slice() {
            SHA1_ID => &SHA1_FOR_LEGACY_USE_ONLY,
            SHA256_ID => &SHA256,
            _ => return true,
        };
        digest(algorithm, name).as_ref() == self.name_hash
    }
}

/// Returns true if the certificate requires a staple. Envoy rejects such a certificate without a
/// staple.
pub fn is_demanded_by(certificate: &X509Certificate<'_>) -> bool {
    let mut extensions = certificate.extensions().iter();
    extensions.any(|it| it.oid.to_id_string() == TLS_FEATURE && it.value == STATUS_REQUEST)
}

struct Elements<'d>(&'d [u8]);

impl<'d> Elements<'d> {
    fn next(&mut self) -> Option<Any<'d>> {
        let (rest, element) = Any::from_der(self.0).ok()?;
        self.0 = rest;
        Some(element)
    }

    /// Returns `None` if the element has a different tag.
    fn expect(&mut self, tag: Tag) -> Option<&'d [u8]> {
        let element = self.next()?;
        (element.class() == Class::Universal && element.tag() == tag).then_some(element.data)
    }

    /// Reads the element only if it has this context-specific tag.
    fn optional(&mut self, number: u32) -> Option<&'d [u8]> {
        let (rest, element) = Any::from_der(self.0).ok()?;
        if element.class() != Class::ContextSpecific || element.tag() != Tag(number) {
            return None;
        }
        self.0 = rest;
        Some(element.data)
    }
}

/// Status of the whole response, not of the certificate.
fn status(der: &[u8]) -> Option<u8> {
    let mut outer = Elements(der);
    let mut response = Elements(outer.expect(Tag::Sequence)?);
    match response.expect(Tag::Enumerated)? {
        [status] if outer.0.is_empty() => Some(*status),
        _ => None,
    }
}

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
    // Skip the signature algorithm and the signature.
    basic.expect(Tag::Sequence)?;
    basic.expect(Tag::BitString)?;
    // Skip the version, which version 1 omits, and the responder identifier.
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
    let name_hash = id.expect(Tag::OctetString)?;
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
            name_hash: name_hash.to_vec(),
        },
        status,
        this_update,
        next_update: time(Elements(next_update).expect(Tag::GeneralizedTime)?)?,
    }))
}

/// Example: `20260131235959Z`.
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

/// `bytes` is a big-endian number.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or_default()
}
