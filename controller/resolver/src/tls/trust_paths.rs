//! Finds signature paths from a certificate to a trusted authority. Used only for warnings, because
//! the peer decides what to trust. A signature that cannot be verified here counts as valid,
//! because a false warning is worse than none.

use x509_parser::error::X509Error;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::pem;
use sesame_kinds::status::PathValidity;

/// Maximum number of signatures that one call to [`paths_to`] verifies.
const MAX_SIGNATURES: usize = 128;

/// Returns the validity period of each path from the first certificate in `chain` to one in
/// `bundle`. Both are PEM. Without a path, the certificate is not trusted.
pub(crate) fn paths_to(chain: &[u8], bundle: &str) -> Vec<PathValidity> {
    let (Ok(chain), Ok(bundle)) = (
        pem::certificates(chain),
        pem::certificates(bundle.as_bytes()),
    ) else {
        return Vec::new();
    };
    let (shown, trusted) = (read(&chain), read(&bundle));
    let mut left = MAX_SIGNATURES;
    // Paths to extend: indices in the chain, and the validity period of all certificates except the
    // last.
    let mut reached = vec![(vec![0], PathValidity::ALWAYS)];
    let mut paths = Vec::new();
    while let Some((places, so_far)) = reached.pop() {
        let Some(certificate) = places.last().and_then(|place| shown.get(*place)) else {
            continue;
        };
        let valid = so_far.and(validity(certificate));
        for authority in &trusted {
            let path = if certificate.as_raw() == authority.as_raw() {
                valid
            } else if issued(certificate, authority, &mut left) {
                valid.and(validity(authority))
            } else {
                continue;
            };
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        for (place, issuer) in shown.iter().enumerate() {
            if !places.contains(&place) && issued(certificate, issuer, &mut left) {
                reached.push(([&places[..], &[place]].concat(), valid));
            }
        }
    }
    if left == 0 {
        // Assume that unchecked paths are valid.
        paths.push(PathValidity::ALWAYS);
    }
    paths
}

fn validity(certificate: &X509Certificate<'_>) -> PathValidity {
    let validity = certificate.validity();
    PathValidity {
        not_before: validity.not_before.timestamp(),
        not_after: validity.not_after.timestamp(),
    }
}

fn read(ders: &[impl AsRef<[u8]>]) -> Vec<X509Certificate<'_>> {
    let read = ders
        .iter()
        .filter_map(|der| X509Certificate::from_der(der.as_ref()).ok());
    read.map(|(_, certificate)| certificate).collect()
}

/// Also returns true if the signature algorithm is unsupported here.
fn issued(
    certificate: &X509Certificate<'_>,
    issuer: &X509Certificate<'_>,
    left: &mut usize,
) -> bool {
    if certificate.issuer().as_raw() != issuer.subject().as_raw() || *left == 0 {
        return false;
    }
    *left -= 1;
    match certificate.verify_signature(Some(issuer.public_key())) {
        Ok(()) | Err(X509Error::SignatureUnsupportedAlgorithm) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
    };

    use super::*;

    struct TestCertificate {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn root(name: &str, key: KeyPair) -> TestCertificate {
        let params = params(name);
        let pem = params.self_signed(&key).expect("a root").pem();
        TestCertificate {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn below(name: &str, above: &TestCertificate) -> TestCertificate {
        let (params, key) = (params(name), KeyPair::generate().expect("a key"));
        let signed = params.signed_by(&key, &above.issuer);
        TestCertificate {
            pem: signed.expect("a certificate").pem(),
            issuer: Issuer::new(params, key),
        }
    }

    #[test]
    fn signatures_count_and_names_do_not() {
        let key = || KeyPair::generate().expect("a key");
        let (own, other) = (root("root", key()), root("other", key()));
        // Same name, different key.
        let namesake = root("root", key());
        let middle = below("middle", &own);
        let leaf = below("leaf", &middle);
        let chain = format!("{}{}", leaf.pem, middle.pem);
        let leads = |chain: &str, bundle: &str| !paths_to(chain.as_bytes(), bundle).is_empty();
        assert!(leads(&chain, &own.pem));
        assert!(leads(&chain, &format!("{}{}", other.pem, own.pem)));
        assert!(leads(&leaf.pem, &middle.pem), "trusted intermediate");
        assert!(leads(&own.pem, &own.pem), "trusted certificate itself");
        assert!(!leads(&chain, &other.pem));
        assert!(!leads(&chain, &namesake.pem));
        assert!(!leads(&leaf.pem, &own.pem), "missing intermediate");
        assert!(!leads(&chain, ""));
    }

    #[test]
    fn trust_path_is_assumed_beyond_signature_limit() {
        let namesake = || root("root", KeyPair::generate().expect("a key"));
        let leaf = below("leaf", &namesake());
        let leads = |number: usize| {
            let bundle: String = (0..number).map(|_| namesake().pem).collect();
            !paths_to(leaf.pem.as_bytes(), &bundle).is_empty()
        };
        assert!(!leads(MAX_SIGNATURES - 1));
        assert!(leads(MAX_SIGNATURES));
    }

    #[test]
    fn path_is_valid_while_all_certificates_are() {
        let (key, day) = (|| KeyPair::generate().expect("a key"), 24 * 60 * 60);
        let valid = |name: &str, from: i32, to: i32| {
            let mut params = params(name);
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(to, 1, 1);
            params
        };
        let own = key();
        let root = valid("root", 2001, 2009);
        let old = root.self_signed(&own).expect("a root").pem();
        let renewed = valid("root", 2004, 2009).self_signed(&own);
        let renewed = renewed.expect("a root").pem();
        let above = Issuer::new(root, own);
        let (middle, middle_key) = (valid("middle", 2003, 2012), key());
        let middle_pem = middle.signed_by(&middle_key, &above).expect("a CA").pem();
        let above = Issuer::new(middle, middle_key);
        let leaf = valid("leaf", 1999, 2005).signed_by(&key(), &above);
        let chain = format!("{}{middle_pem}", leaf.expect("a leaf").pem());
        let years = |bundle: &str| -> Vec<(i64, i64)> {
            let year = |seconds: i64| 1970 + seconds / (365 * day);
            let paths = paths_to(chain.as_bytes(), bundle);
            paths
                .iter()
                .map(|path| (year(path.not_before), year(path.not_after)))
                .collect()
        };
        assert_eq!(years(&old), [(2003, 2005)]);
        assert_eq!(years(&renewed), [(2004, 2005)]);
        let both = format!("{old}{renewed}");
        assert_eq!(years(&both), [(2003, 2005), (2004, 2005)]);
        assert_eq!(years(&middle_pem), [(2003, 2005)]);
    }
}
