//! Reads conditions on client certificates. Errors start with the field path relative to `spec`.

use sesame_proto::schema::CertificateNames;

use crate::syntax::limits;
use crate::tls::subject_alt_names::AltNames;
use sesame_kinds::api::{AccessCertificate, CertificateName, CertificateNameType};

const MAX_SUBJECT: usize = 1024;

pub(super) fn read(at: &str, spec: &AccessCertificate) -> Result<CertificateNames, String> {
    let AccessCertificate {
        subject_alt_names,
        subject,
    } = spec;
    if subject_alt_names.is_empty() && subject.is_none() {
        return Err(format!("{at}: expected subjectAltNames or subject"));
    }
    let field = format!("{at}.subjectAltNames");
    let most = CertificateNames::MAX_NAMES;
    limits::entries(&field, subject_alt_names.len(), 0..=most)?;
    let mut names = AltNames::default();
    for (i, CertificateName { type_, value }) in subject_alt_names.iter().enumerate() {
        let added = match type_ {
            CertificateNameType::Dns => names.add_dns_name(value),
            CertificateNameType::Uri => names.add_uri(value),
            CertificateNameType::Other(other) => {
                let known = CertificateNameType::WORDS.join(" or ");
                return Err(format!(
                    "{field}[{i}].type {other:?} is unknown; expected {known}"
                ));
            }
        };
        added.map_err(|why| format!("{field}[{i}].value {why}"))?;
    }
    let AltNames {
        dns_names,
        uris,
        dns_suffixes,
        uri_prefixes,
    } = names;
    let subject = subject.as_deref().map(|it| read_subject(at, it));
    Ok(CertificateNames {
        dns_names,
        uris,
        dns_suffixes,
        uri_prefixes,
        subject: subject.transpose()?.unwrap_or_default(),
    })
}

/// The proxy compares the whole text, so a subject without attributes would never match.
fn read_subject(at: &str, subject: &str) -> Result<String, String> {
    let field = format!("{at}.subject");
    limits::max_bytes(&field, subject, MAX_SUBJECT)?;
    if !subject.contains('=') || !subject.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return Err(format!(
            "{field} {subject:?} is not a subject in the format of RFC 2253, such as \
             CN=ann,O=Example"
        ));
    }
    Ok(subject.to_owned())
}
