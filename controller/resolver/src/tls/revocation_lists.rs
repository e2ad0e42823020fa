//! Validates revocation lists (CRLs).
//!
//! Never skip an unsupported list, because revoked certificates would be accepted. Reject the
//! object that contains the list instead.

use rustls_pki_types::CertificateRevocationListDer;
use x509_parser::prelude::{CertificateRevocationList, FromDer as _};
use x509_parser::revocation_list::TbsCertList;

use super::pem;
use crate::syntax::limits::MAX_REVOKED;

/// Extensions of partial lists, which Envoy cannot combine with other lists.
const PARTS: [(&str, &str); 2] = [
    ("2.5.29.27", "a delta of another list"),
    ("2.5.29.28", "limited to certain certificates"),
];

pub(super) struct RevocationList {
    /// In canonical PEM.
    pub(super) pem: String,
    /// In DER.
    pub(super) issuer: Vec<u8>,
}

/// The error completes the sentence "ConfigMap x ca.crl …".
pub(super) fn read(text: &str) -> Result<Vec<RevocationList>, String> {
    let lists = pem::revocation_lists(text.as_bytes())?;
    let mut revoked = 0;
    let mut found = Vec::new();
    for (i, der) in lists.iter().enumerate() {
        let (rest, list) = CertificateRevocationList::from_der(der)
            .map_err(|_| format!("list {i} is malformed"))?;
        if !rest.is_empty() {
            return Err(format!("list {i} has {} trailing bytes", rest.len()));
        }
        check(&list.tbs_cert_list).map_err(|why| format!("list {i} {why}"))?;
        revoked += list.iter_revoked_certificates().count();
        if revoked > MAX_REVOKED {
            return Err(format!("revokes more than {MAX_REVOKED} certificates"));
        }
        found.push(RevocationList {
            pem: pem::encode_revocation_list(&CertificateRevocationListDer::from(der.as_ref())),
            issuer: list.issuer().as_raw().to_vec(),
        });
    }
    Ok(found)
}

fn check(list: &TbsCertList<'_>) -> Result<(), String> {
    for extension in list.extensions() {
        let id = extension.oid.to_id_string();
        if let Some((_, what)) = PARTS.iter().find(|(known, _)| *known == id) {
            return Err(format!("is {what}; expected the issuer's full list"));
        }
        if extension.critical && id != "2.5.29.20" && id != "2.5.29.35" {
            return Err(format!(
                "has the critical extension {id}, which Envoy does not support"
            ));
        }
    }
    Ok(())
}
