//! Validates CA certificates and combines them into trust bundles.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::schema::TrustBundle;
use sesame_proto::sizes::MAX_TRUST_BUNDLE_BYTES;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::pem;
use super::revocation_lists::RevocationList;
use sesame_kinds::certificate_facts::distinguished;

#[derive(Debug)]
pub(super) struct Authorities {
    pub(super) certificates: Vec<Authority>,
    /// In canonical PEM.
    pub(super) crls: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Authority {
    /// In canonical PEM.
    pem: String,
    subject: String,
    /// In hexadecimal.
    serial: String,
    public_key: Vec<u8>,
    has_crl: bool,
}

#[derive(Debug)]
pub(super) struct Union {
    /// The error is the size in bytes if it exceeds the limit.
    pub(super) bundle: Result<Arc<TrustBundle>, usize>,
    pub(super) advice: Option<String>,
}

impl Union {
    /// Removes duplicates. `name` must identify the sources, because unions are cached by name.
    pub(super) fn new(name: &str, sources: &[(String, Arc<Authorities>)]) -> Self {
        let mut authorities: Vec<Authority> = Vec::new();
        let mut crls: Vec<&str> = Vec::new();
        for (_, found) in sources {
            for authority in &found.certificates {
                match authorities.iter_mut().find(|it| it.pem == authority.pem) {
                    Some(known) => known.has_crl |= authority.has_crl,
                    None => authorities.push(authority.clone()),
                }
            }
            for crl in &found.crls {
                if !crls.contains(&crl.as_str()) {
                    crls.push(crl);
                }
            }
        }
        let certificates = authorities.iter().map(|authority| authority.pem.len());
        let size: usize = certificates.chain(crls.iter().map(|crl| crl.len())).sum();
        // Never truncate the bundle, because the removed part could revoke certificates.
        if size > MAX_TRUST_BUNDLE_BYTES {
            return Self {
                bundle: Err(size),
                advice: None,
            };
        }
        let unlisted = unlisted(&authorities, !crls.is_empty());
        let bundle = bundle(name.to_owned(), &authorities, &crls);
        let advice: Vec<String> = unlisted
            .into_iter()
            .chain(namesakes(&authorities))
            .collect();
        Self {
            bundle: Ok(Arc::new(bundle)),
            advice: (!advice.is_empty()).then(|| advice.join("; ")),
        }
    }
}

/// Warns if only some authorities have a revocation list.
fn unlisted(authorities: &[Authority], any_list: bool) -> Option<String> {
    let unlisted = authorities.iter().filter(|it| !it.has_crl && any_list);
    let unlisted: Vec<&str> = unlisted.map(|it| it.subject.as_str()).collect();
    (!unlisted.is_empty()).then(|| {
        format!(
            "ca.crl has no list from {}: certificates that they have issued are rejected, and for \
            other certificates only the leaf is checked, not its chain",
            unlisted.join(", ")
        )
    })
}

/// Warns if CA certificates with different keys have the same subject.
fn namesakes(authorities: &[Authority]) -> impl Iterator<Item = String> {
    let mut by_subject: BTreeMap<&str, Vec<&Authority>> = BTreeMap::new();
    for authority in authorities {
        by_subject
            .entry(&authority.subject)
            .or_default()
            .push(authority);
    }
    by_subject.into_iter().filter_map(|(subject, all)| {
        let first = all.first()?;
        if all.iter().all(|it| it.public_key == first.public_key) {
            return None;
        }
        let serials: Vec<&str> = all.iter().map(|it| it.serial.as_str()).collect();
        Some(format!(
            "{} CA certificates with different keys have the subject {subject} (serial numbers \
            {}): all are trusted, but certificates without an authority key identifier are \
            verified with the first one only, and rejected if another one has signed them",
            all.len(),
            serials.join(", ")
        ))
    })
}

pub(super) fn bundle(
    name: String,
    certificates: &[Authority],
    crls: &[impl Borrow<str>],
) -> TrustBundle {
    TrustBundle {
        name,
        pem: certificates.iter().map(|it| it.pem.as_str()).collect(),
        crl: crls.concat(),
        crl_for_leaf_only: !crls.is_empty() && certificates.iter().any(|it| !it.has_crl),
    }
}

pub(super) fn authorities(
    field: &str,
    text: &str,
    lists: Vec<RevocationList>,
) -> Result<Arc<Authorities>, String> {
    let (authorities, unused) = read(field, text, lists)?;
    if let Some(i) = unused {
        return Err(format!(
            "ca.crl list {i} was issued by none of the CAs in {field}; remove the list, or add its issuer"
        ));
    }
    Ok(Arc::new(authorities))
}

/// Also returns the index of the first revocation list that none of the authorities issued.
pub(super) fn read(
    field: &str,
    text: &str,
    lists: Vec<RevocationList>,
) -> Result<(Authorities, Option<usize>), String> {
    let mut unused: Vec<bool> = vec![true; lists.len()];
    let ders = pem::certificates(text.as_bytes()).map_err(|why| format!("{field} {why}"))?;
    let mut certificates = Vec::new();
    for (i, der) in ders.iter().enumerate() {
        let (rest, certificate) = X509Certificate::from_der(der)
            .map_err(|_| format!("{field} certificate {i} is malformed"))?;
        let issued = |list: &RevocationList| list.issuer == certificate.subject().as_raw();
        for (unused, list) in unused.iter_mut().zip(&lists) {
            *unused &= !issued(list);
        }
        // Drop the trailing data that old tools append.
        let length = der.len() - rest.len();
        let whole = der.get(..length).unwrap_or_default();
        certificates.push(Authority {
            pem: pem::encode_certificates(&[whole.into()]),
            subject: distinguished(certificate.subject()),
            serial: certificate.tbs_certificate.serial.to_str_radix(16),
            public_key: certificate.public_key().raw.to_vec(),
            has_crl: lists.iter().any(issued),
        });
    }
    let unused = unused.iter().position(|unused| *unused);
    let crls = lists.into_iter().map(|list| list.pem).collect();
    Ok((Authorities { certificates, crls }, unused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_subject_with_several_keys_is_reported() {
        let authority = |subject: &str, serial: &str, key: u8| Authority {
            pem: format!("{subject} {serial} {key}"),
            subject: subject.to_owned(),
            serial: serial.to_owned(),
            public_key: vec![key],
            has_crl: false,
        };
        let messages = |all: &[Authority]| namesakes(all).collect::<Vec<_>>();
        let (one, renewed) = (authority("CN=a", "7", 1), authority("CN=a", "8", 1));
        let other = authority("CN=b", "7", 2);
        assert_eq!(messages(&[]), [""; 0]);
        assert_eq!(
            messages(&[one.clone(), renewed.clone(), other.clone()]),
            [""; 0]
        );
        let twin = authority("CN=a", "7", 3);
        let messages = messages(&[one, other, renewed, twin]);
        assert_eq!(messages.len(), 1, "{messages:?}");
        let begin = "3 CA certificates with different keys have the subject CN=a (serial numbers 7, 8, 7): ";
        assert!(messages[0].starts_with(begin), "{messages:?}");
    }
}
