//! Reads and validates key pairs. Neither errors nor `Debug` output contain any part of a private
//! key.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::KeyRef;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::private_keys::{KeyKind, PrivateKey};
use super::{chains, pem};
use crate::context::grants::Referrer;
use crate::syntax::hostnames::Hostname;
use sesame_kinds::api::{NamespacedName, Secret};
use sesame_kinds::ocsp_response::{self, OcspResponse};
use sesame_kinds::world::Kind;

const TLS_SECRET: &str = "kubernetes.io/tls";
/// Secret key that contains the leaf's OCSP response. Other projects use the same name.
const STAPLE: &str = "tls.ocsp-staple";

#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) key: KeyRef,
    pub(crate) pair: Arc<KeyPair>,
    pub(crate) kind: KeyKind,
    /// Flaws that make Envoy or clients reject the certificate.
    pub(crate) advice: Vec<String>,
    /// Flaws that make clients reject a server with this certificate.
    pub(crate) server_advice: Vec<String>,
    for_clients: bool,
    /// DNS names in lower case.
    dns_names: Vec<String>,
}

impl Certificate {
    /// A wildcard in a certificate covers exactly one label.
    pub(crate) fn covers(&self, hostname: &Hostname) -> bool {
        let name = hostname.as_str();
        let parent = name.split_once('.').map(|(_, parent)| parent);
        name.is_empty()
            || self.dns_names.iter().any(|san| {
                san == name
                    || san
                        .strip_prefix("*.")
                        .is_some_and(|suffix| parent == Some(suffix))
            })
    }

    /// Returns the DNS names in lower case.
    pub(crate) fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.dns_names.iter().map(String::as_str)
    }

    /// Returns true if a listener with both certificates never presents `other`.
    pub(crate) fn stands_for(&self, other: &Self) -> bool {
        self.kind == other.kind
            && !other.dns_names.is_empty()
            && other
                .dns_names
                .iter()
                .all(|name| self.dns_names.contains(name))
    }
}

/// The Gateway API requires the type `kubernetes.io/tls`. For HTTPProxies and Ingresses, `Opaque` is
/// also valid, as in Contour. The error completes the sentence "Secret x …".
pub(super) fn check_type(secret: &Secret, referrer: Referrer<'_>) -> Result<(), String> {
    let type_ = secret.type_.as_str();
    let takes_opaque = [Kind::HttpProxy, Kind::Ingress].map(Kind::as_str);
    let is_opaque = ["Opaque", ""].contains(&type_);
    if type_ == TLS_SECRET || is_opaque && takes_opaque.contains(&referrer.kind) {
        return Ok(());
    }
    Err(format!(
        "has type {type_:?}; expected {TLS_SECRET:?} with tls.crt and tls.key"
    ))
}

/// The error completes the sentence "Secret x …".
pub(super) fn parse(key: &NamespacedName, secret: &Secret) -> Result<Certificate, String> {
    let part = |name: &str| {
        secret
            .get(name)
            .filter(|bytes| !bytes.is_empty())
            .ok_or_else(|| format!("has no {name}"))
    };
    let staple = secret.get(STAPLE).unwrap_or_default();
    check(key, part("tls.crt")?, part("tls.key")?, staple)
}

/// A validated key pair from files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedPair {
    /// Reference to the key pair.
    pub key: KeyRef,
    /// The key pair.
    pub pair: KeyPair,
    /// Flaws that make Envoy or clients reject the certificate.
    pub advice: Vec<String>,
    /// Flaws that make clients reject a server with this certificate.
    pub server_advice: Vec<String>,
    /// True if the leaf is a client certificate.
    pub for_clients: bool,
}

/// Validates a key pair that an agent reads from files instead of a Secret. Errors refer to the
/// parts as `tls.crt` and `tls.key`, and never quote them.
pub fn checked_pair(
    secret: &NamespacedName,
    chain: &[u8],
    private_key: &[u8],
) -> Result<CheckedPair, String> {
    let Certificate {
        key,
        pair,
        advice,
        server_advice,
        for_clients,
        ..
    } = check(secret, chain, private_key, &[])?;
    Ok(CheckedPair {
        key,
        pair: KeyPair::clone(&pair),
        advice,
        server_advice,
        for_clients,
    })
}

/// Only checks that the key matches a certificate, which becomes the leaf. Envoy checks the rest,
/// because TLS implementations disagree. Drops an unusable OCSP staple.
pub(super) fn check(
    key: &NamespacedName,
    chain: &[u8],
    private_key: &[u8],
    staple: &[u8],
) -> Result<Certificate, String> {
    let chain = pem::certificates(chain).map_err(|why| format!("tls.crt {why}"))?;
    let private_key = pem::private_key(private_key).map_err(|why| format!("tls.key {why}"))?;
    let mut certificates = Vec::with_capacity(chain.len());
    let mut encoded = Vec::with_capacity(chain.len());
    for (i, der) in chain.iter().enumerate() {
        let (rest, certificate) = X509Certificate::from_der(der)
            .map_err(|_| format!("tls.crt certificate {i} is malformed"))?;
        // Drop the additional data that old tools append.
        encoded.push(der.get(..der.len() - rest.len()).unwrap_or_default());
        certificates.push(certificate);
    }
    let read = PrivateKey::read(&private_key).map_err(|why| format!("tls.key {why}"))?;
    let owner = certificates
        .iter()
        .position(|certificate| read.belongs_to(certificate.public_key()));
    let Some((place, leaf)) = owner.and_then(|place| Some((place, certificates.get(place)?)))
    else {
        return Err("tls.key does not match any certificate in tls.crt".to_owned());
    };
    let order = chains::order(&certificates, place);
    let shown: Vec<CertificateDer<'_>> = order
        .iter()
        .filter_map(|place| encoded.get(*place).copied())
        .map(CertificateDer::from)
        .collect();
    let bytes = shown.iter().map(|certificate| certificate.len()).sum();

    let name = format!("Secret/{key}");
    let mut advice = chains::advice(&name, &certificates, &order, bytes);
    let (ocsp_staple, left_out) = usable_staple(&name, staple, leaf)?;
    advice.extend(left_out);
    let pair = KeyPair {
        name: name.clone(),
        certificate_chain: pem::encode_certificates(&shown).into_bytes(),
        private_key: pem::encode_private_key(&private_key).into_bytes(),
        ocsp_staple,
    };
    Ok(Certificate {
        kind: KeyKind::of(leaf.public_key()),
        advice,
        server_advice: chains::server_advice(&name, leaf),
        for_clients: chains::is_for_clients(leaf),
        dns_names: dns_names(leaf),
        key: KeyRef {
            name,
            digest: pair.digest(),
            serial: leaf.tbs_certificate.serial.to_str_radix(16),
            not_after: leaf.validity().not_after.timestamp(),
            on_host: false,
        },
        pair: Arc::new(pair),
    })
}

/// Returns the staple, or a warning if it is unusable. Fails if the leaf requires a staple. Only
/// Envoy checks the staple's expiry.
fn usable_staple(
    name: &str,
    staple: &[u8],
    leaf: &X509Certificate<'_>,
) -> Result<(Vec<u8>, Option<String>), String> {
    let fault = if staple.is_empty() {
        "is empty or missing".to_owned()
    } else {
        match OcspResponse::read(staple).and_then(|response| response.check_for(leaf)) {
            Ok(()) => return Ok((staple.to_vec(), None)),
            Err(why) => why.to_string(),
        }
    };
    if ocsp_response::is_demanded_by(leaf) {
        return Err(format!(
            "{STAPLE} {fault}; the certificate requires an OCSP staple (must-staple), and Envoy \
            does not accept it without one"
        ));
    }
    let message = || format!("{STAPLE} of {name} {fault}; the certificate is served without it");
    Ok((Vec::new(), (!staple.is_empty()).then(message)))
}

fn dns_names(leaf: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = leaf.subject_alternative_name() else {
        return Vec::new();
    };
    names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}
