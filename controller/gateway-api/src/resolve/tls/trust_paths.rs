//! Paths of signatures from a certificate to an authority that the other side trusts.
//!
//! Nothing is refused here: who is let in is for the other side to decide. So what cannot be computed counts as trusted, because
//! a warning that is wrong is worse than none.

use x509_parser::error::X509Error;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::pem;

/// Most signatures that are verified for one answer.
const MAX_SIGNATURES: usize = 128;

/// Returns true if a path of signatures leads from the first certificate of the chain to one of the bundle, both as PEM.
pub(crate) fn leads_to(chain: &[u8], bundle: &str) -> bool {
    let (Ok(chain), Ok(bundle)) = (
        pem::certificates(chain),
        pem::certificates(bundle.as_bytes()),
    ) else {
        return false;
    };
    let (shown, trusted) = (read(&chain), read(&bundle));
    let mut left = MAX_SIGNATURES;
    let mut reached = vec![0];
    let mut next = 0;
    while let Some(certificate) = reached.get(next).and_then(|place| shown.get(*place)) {
        for authority in &trusted {
            if certificate.as_raw() == authority.as_raw()
                || issued(certificate, authority, &mut left)
            {
                return true;
            }
        }
        for (place, issuer) in shown.iter().enumerate() {
            if !reached.contains(&place) && issued(certificate, issuer, &mut left) {
                reached.push(place);
            }
        }
        next += 1;
    }
    // Nobody has looked at the rest.
    left == 0
}

fn read(ders: &[impl AsRef<[u8]>]) -> Vec<X509Certificate<'_>> {
    let read = ders
        .iter()
        .filter_map(|der| X509Certificate::from_der(der.as_ref()).ok());
    read.map(|(_, certificate)| certificate).collect()
}

/// Returns true if `issuer` has signed the certificate, as far as that can be computed.
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
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    struct Made {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn root(name: &str, key: KeyPair) -> Made {
        let params = params(name);
        let pem = params.self_signed(&key).expect("a root").pem();
        Made {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn below(name: &str, above: &Made) -> Made {
        let (params, key) = (params(name), KeyPair::generate().expect("a key"));
        let signed = params.signed_by(&key, &above.issuer);
        Made {
            pem: signed.expect("a certificate").pem(),
            issuer: Issuer::new(params, key),
        }
    }

    #[test]
    fn signatures_count_and_names_do_not() {
        let key = || KeyPair::generate().expect("a key");
        let (own, other) = (root("root", key()), root("other", key()));
        // Of the same name, but with another key.
        let namesake = root("root", key());
        let middle = below("middle", &own);
        let leaf = below("leaf", &middle);
        let chain = format!("{}{}", leaf.pem, middle.pem);
        let leads = |chain: &str, bundle: &str| leads_to(chain.as_bytes(), bundle);
        assert!(leads(&chain, &own.pem));
        assert!(leads(&chain, &format!("{}{}", other.pem, own.pem)));
        assert!(leads(&leaf.pem, &middle.pem), "an authority below the root");
        assert!(leads(&own.pem, &own.pem), "a certificate that is its own");
        assert!(!leads(&chain, &other.pem));
        assert!(!leads(&chain, &namesake.pem));
        assert!(!leads(&leaf.pem, &own.pem), "its issuer is not shown");
        assert!(!leads(&chain, ""));
    }

    #[test]
    fn nobody_is_warned_of_what_was_not_looked_at() {
        let namesake = || root("root", KeyPair::generate().expect("a key"));
        let leaf = below("leaf", &namesake());
        let leads = |number: usize| {
            let bundle: String = (0..number).map(|_| namesake().pem).collect();
            leads_to(leaf.pem.as_bytes(), &bundle)
        };
        assert!(!leads(MAX_SIGNATURES - 1));
        assert!(leads(MAX_SIGNATURES));
    }
}
