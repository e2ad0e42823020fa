//! Sorts certificate chains and finds flaws that make Envoy or clients reject them.
//!
//! Never rejects a chain, because that is up to Envoy. Messages identify certificates by their
//! index in `tls.crt`.

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use super::private_keys;

/// Maximum size of a chain in bytes, as in rustls. Some clients reject longer chains.
const MAX_BYTES: usize = 64 * 1024;
const MAX_REPORTED: usize = 8;
/// OIDs of signature algorithms with insecure hashes.
const WEAK_SIGNATURES: [(&str, &str); 5] = [
    ("1.2.840.113549.1.1.2", "MD2"),
    ("1.2.840.113549.1.1.4", "MD5"),
    ("1.2.840.113549.1.1.5", "SHA-1"),
    ("1.2.840.10045.4.1", "SHA-1"),
    ("1.2.840.10040.4.3", "SHA-1"),
];

/// Returns the indices of the leaf, each issuer after the certificate it signed, then the rest.
/// Keeps the given order if it is valid.
pub(super) fn order(certificates: &[X509Certificate<'_>], leaf: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..certificates.len())
        .filter(|place| *place != leaf)
        .collect();
    let mut shown = vec![leaf];
    let mut last = certificates.get(leaf);
    while let Some(issued) = last.filter(|certificate| !is_self_issued(certificate)) {
        let issuer = issued.issuer().as_raw();
        let next = left.iter().position(|place| {
            let certificate = certificates.get(*place);
            certificate.is_some_and(|it| it.subject().as_raw() == issuer)
        });
        let Some(next) = next else { break };
        let place = left.remove(next);
        shown.push(place);
        last = certificates.get(place);
    }
    if leaf == 0 && shown.is_sorted() {
        return (0..certificates.len()).collect();
    }
    shown.extend(left);
    shown
}

/// `order` is the order in which Envoy sends the certificates, and `bytes` is their total size.
pub(super) fn advice(
    name: &str,
    certificates: &[X509Certificate<'_>],
    order: &[usize],
    bytes: usize,
) -> Vec<String> {
    let mut shown = order
        .iter()
        .filter_map(|place| Some((*place, certificates.get(*place)?)));
    let mut advice = Vec::new();
    if !order.is_sorted() {
        let places: Vec<String> = order
            .iter()
            .take(MAX_REPORTED)
            .map(ToString::to_string)
            .collect();
        advice.push(format!(
            "tls.crt of {name} is not in chain order; its certificates are sent as {}{}: the \
            leaf, then each issuer",
            places.join(", "),
            if order.len() > MAX_REPORTED {
                ", …"
            } else {
                ""
            }
        ));
    }
    let weak = shown.clone().find_map(|(place, certificate)| {
        let id = certificate.signature_algorithm.algorithm.to_id_string();
        let (_, hash) = WEAK_SIGNATURES.iter().find(|(known, _)| *known == id)?;
        (!is_self_issued(certificate)).then_some((place, hash))
    });
    if let Some((place, hash)) = weak {
        advice.push(format!(
            "certificate {place} of {name} is signed with {hash}, which clients reject"
        ));
    }
    let Some((_, leaf)) = shown.next() else {
        return advice;
    };
    let short = shown.find_map(|(place, certificate)| {
        let bits = private_keys::short_rsa(certificate.public_key())?;
        (!is_self_issued(certificate)).then_some((place, bits))
    });
    if let Some((place, bits)) = short {
        advice.push(format!(
            "certificate {place} of {name} has an RSA key of {bits} bits, which clients reject"
        ));
    }
    if bytes > MAX_BYTES {
        advice.push(format!(
            "tls.crt of {name} has {} certificates with a total of {bytes} bytes; some clients reject more than {MAX_BYTES}",
            certificates.len()
        ));
    }
    advice.extend(of_leaf(name, leaf));
    advice
}

fn of_leaf(name: &str, leaf: &X509Certificate<'_>) -> Vec<String> {
    let mut advice = Vec::new();
    if let Some(kind) = private_keys::refused_kind(leaf.public_key()) {
        advice.push(format!(
            "the key of {name} is {kind}, which Envoy is known to reject; it accepts RSA of at \
            least 2048 bits, ECDSA on P-256, P-384 or P-521, and Ed25519"
        ));
    }
    if let Ok(Some(usage)) = leaf.key_usage()
        && !usage.value.digital_signature()
    {
        advice.push(format!(
            "the certificate of {name} lacks the digitalSignature key usage, which TLS requires; Envoy or clients reject it"
        ));
    }
    advice
}

pub(super) fn server_advice(name: &str, leaf: &X509Certificate<'_>) -> Vec<String> {
    let mut advice = Vec::new();
    if let Ok(Some(usage)) = leaf.extended_key_usage()
        && !usage.value.server_auth
        && !usage.value.any
    {
        advice.push(format!(
            "the certificate of {name} is not valid for servers, because its extended key usage \
             lacks serverAuth; clients reject it"
        ));
    }
    if !names_a_host(leaf) {
        let what = if leaf.subject().iter_common_name().next().is_none() {
            "no name at all; Envoy is known to reject it"
        } else {
            "no DNS name or IP address as subject alternative name; clients reject it, because \
             they ignore the common name"
        };
        advice.push(format!("the certificate of {name} has {what}"));
    }
    advice
}

/// Returns true if the leaf is valid only for clients, or has a URI but no hostname, as in SPIFFE.
pub(super) fn is_for_clients(leaf: &X509Certificate<'_>) -> bool {
    let only_client = match leaf.extended_key_usage() {
        Ok(Some(usage)) => usage.value.client_auth && !usage.value.server_auth && !usage.value.any,
        _ => false,
    };
    only_client
        || (has_name(leaf, |name| matches!(name, GeneralName::URI(_))) && !names_a_host(leaf))
}

fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.subject().as_raw() == certificate.issuer().as_raw()
}

/// Also returns true if the names are malformed.
fn names_a_host(leaf: &X509Certificate<'_>) -> bool {
    has_name(leaf, |name| {
        matches!(name, GeneralName::DNSName(_) | GeneralName::IPAddress(_))
    })
}

/// Also returns true if the names are malformed.
fn has_name(leaf: &X509Certificate<'_>, is_one: fn(&GeneralName<'_>) -> bool) -> bool {
    match leaf.subject_alternative_name() {
        Ok(Some(names)) => names.value.general_names.iter().any(is_one),
        Ok(None) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
        KeyPair, KeyUsagePurpose,
    };
    use x509_parser::prelude::FromDer as _;

    use super::*;

    fn params(name: &str, ca: bool) -> CertificateParams {
        let names = if ca {
            Vec::new()
        } else {
            vec![name.to_owned()]
        };
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        if ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params
    }

    /// A root, two intermediates, a leaf, and an unrelated certificate.
    fn made() -> Vec<Vec<u8>> {
        let mut made = Vec::new();
        let key = KeyPair::generate().expect("a key");
        let root = params("root", true);
        made.push(root.self_signed(&key).expect("a root").der().to_vec());
        let mut issuer = Issuer::new(root, key);
        for name in ["one", "two"] {
            let key = KeyPair::generate().expect("a key");
            let params = params(name, true);
            let certificate = params.signed_by(&key, &issuer).expect("an authority");
            made.push(certificate.der().to_vec());
            issuer = Issuer::new(params, key);
        }
        let key = KeyPair::generate().expect("a key");
        let leaf = params("a.test", false).signed_by(&key, &issuer);
        made.push(leaf.expect("a leaf").der().to_vec());
        let other = params("other", true)
            .self_signed(&key)
            .expect("another certificate");
        made.push(other.der().to_vec());
        made
    }

    #[test]
    fn certificates_are_reordered_before_their_issuers() {
        let made = made();
        let (root, one, two, leaf, other) = (0, 1, 2, 3, 4);
        let cases: [(&[usize], &[usize]); 9] = [
            (&[leaf, two, one, root], &[leaf, two, one, root]),
            (&[leaf], &[leaf]),
            (&[leaf, one, two], &[leaf, two, one]),
            (&[root, one, two, leaf], &[leaf, two, one, root]),
            (&[other, leaf, two], &[leaf, two, other]),
            // All issuers already follow the certificates that they signed.
            (&[leaf, other, two, one], &[leaf, other, two, one]),
            (&[leaf, two, two, one], &[leaf, two, two, one]),
            (&[leaf, one, one, two], &[leaf, two, one, one]),
            (&[leaf, leaf], &[leaf, leaf]),
        ];
        for (file, expected) in cases {
            let certificates: Vec<X509Certificate<'_>> = file
                .iter()
                .map(|which| X509Certificate::from_der(&made[*which]).expect("DER").1)
                .collect();
            let place = file
                .iter()
                .position(|which| *which == leaf)
                .expect("a leaf");
            let order = order(&certificates, place);
            let shown: Vec<usize> = order.iter().map(|place| file[*place]).collect();
            assert_eq!(shown, expected, "{file:?}");
            let messages = advice("Secret/ns/a", &certificates, &order, 1);
            assert_eq!(
                messages.is_empty(),
                file == expected,
                "{file:?}: {messages:?}"
            );
        }
    }

    type Change = fn(&mut CertificateParams);

    #[test]
    fn certificates_that_clients_refuse_are_reported() {
        let of = |change: Change, bytes| {
            let mut params = params("a.test", false);
            change(&mut params);
            let key = KeyPair::generate().expect("a key");
            let made = params.self_signed(&key).expect("a certificate");
            let (_, certificate) = X509Certificate::from_der(made.der()).expect("DER");
            let server_messages = server_advice("Secret/ns/a", &certificate);
            let mut all = advice("Secret/ns/a", &[certificate], &[0], bytes);
            all.extend(server_messages);
            all.join("; ")
        };
        assert_eq!(of(|_| {}, 1), "");
        let cases: [(Change, usize, &str); 5] = [
            (|_| {}, 65_537, "of 65537 bytes"),
            (
                |it| it.subject_alt_names.clear(),
                1,
                "ignore the common name",
            ),
            (
                |it| {
                    it.subject_alt_names.clear();
                    it.distinguished_name = rcgen::DistinguishedName::new();
                },
                1,
                "no name at all",
            ),
            (
                |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
                1,
                "not valid for servers",
            ),
            (
                |it| it.key_usages = vec![KeyUsagePurpose::KeyCertSign],
                1,
                "lacks the digitalSignature key usage",
            ),
        ];
        for (change, bytes, expected) in cases {
            let messages = of(change, bytes);
            assert!(messages.contains(expected), "{expected}: {messages}");
        }
    }

    #[test]
    fn client_certificates_are_distinguished_from_server_ones() {
        let name = |text: &str| text.try_into().expect("a name");
        let cases: [(Change, bool); 3] = [
            (|_| {}, false),
            (|it| it.subject_alt_names.clear(), false),
            (
                |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
                true,
            ),
        ];
        let is_for_clients = |params: &CertificateParams| {
            let key = KeyPair::generate().expect("a key");
            let made = params.self_signed(&key).expect("a certificate");
            is_for_clients(&X509Certificate::from_der(made.der()).expect("DER").1)
        };
        for (number, (change, expected)) in cases.into_iter().enumerate() {
            let mut params = params("a.test", false);
            change(&mut params);
            assert_eq!(is_for_clients(&params), expected, "{number}");
        }
        let mut spiffe = params("a.test", false);
        spiffe.subject_alt_names = vec![rcgen::SanType::URI(name("spiffe://a.test/edge"))];
        assert!(is_for_clients(&spiffe));
        spiffe
            .subject_alt_names
            .push(rcgen::SanType::DnsName(name("a.test")));
        assert!(!is_for_clients(&spiffe));
    }
}
