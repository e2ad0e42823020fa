//! Key pairs from Secrets: looked up, permitted, read and checked.
//!
//! A private key leaves only as a [`KeyPair`]; no error and no `Debug` output has any part of one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::KeyRef;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::private_keys::{KeyKind, PrivateKey};
use super::{chains, pem, ticket_keys};
use crate::api::{NamespacedName, ObjectRef, Secret};
use crate::ocsp_response::{self, OcspResponse};
use crate::resolve::context::ResolveContext;
use crate::resolve::context::grants::Referrer;
use crate::resolve::context::references::Expected;
use crate::resolve::syntax::hostnames::Hostname;
use crate::resolve::syntax::names::check_object;
use crate::status::{Grounds, Reason};
use crate::world::LastGoodKeys;

/// The objects that references to key pairs name.
const SECRETS: Expected = Expected {
    kind: "Secret",
    default: "Secret",
    wrong_kind: Reason::InvalidCertificateRef,
    wrong_name: Reason::InvalidCertificateRef,
};
/// The type of a Secret with a key pair.
const TLS_SECRET: &str = "kubernetes.io/tls";
/// The entry of a Secret with the OCSP response on its leaf. Others use the same name.
const STAPLE: &str = "tls.ocsp-staple";

/// A checked key pair.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) key: KeyRef,
    pub(crate) pair: Arc<KeyPair>,
    pub(crate) kind: KeyKind,
    /// Sentences on what Envoy or clients will not like about it.
    pub(crate) advice: Vec<String>,
    /// DNS names of the leaf, lower case.
    dns_names: Vec<String>,
}

impl Certificate {
    /// Returns true if the leaf is for the hostname; a wildcard in a certificate stands for one label.
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

    /// Returns the DNS names of the leaf, lower case.
    pub(crate) fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.dns_names.iter().map(String::as_str)
    }

    /// Returns true if no client is ever shown the other one where both are.
    pub(crate) fn stands_for(&self, other: &Self) -> bool {
        self.kind == other.kind
            && !other.dns_names.is_empty()
            && other
                .dns_names
                .iter()
                .all(|name| self.dns_names.contains(name))
    }
}

/// A key pair that can be served.
pub(crate) struct Usable {
    pub(crate) certificate: Arc<Certificate>,
    /// The fault of the Secret, where this is the last good key pair of it.
    pub(crate) fault: Option<Grounds>,
}

type ParsedSecret = Result<Arc<Certificate>, String>;

/// Key pairs that were parsed before, for a Resolver that is used again. The same Secret gives the same result without them.
/// Those that a resolution does not use are forgotten after it.
#[derive(Debug, Default)]
pub(crate) struct CertificateCache {
    entries: HashMap<NamespacedName, (Arc<Secret>, ParsedSecret)>,
}

/// The key pairs of one resolution.
pub(crate) struct Certificates<'w, 'c> {
    cache: &'c mut CertificateCache,
    seen: HashMap<(&'w str, &'w str), ParsedSecret>,
    /// The last good pairs of Secrets that are broken; none where there is no pair that is still valid.
    kept: BTreeMap<NamespacedName, Option<Arc<Certificate>>>,
    by_name: BTreeMap<String, Arc<Certificate>>,
    /// Keys of session tickets, by the name of their `KeyRef`.
    of_tickets: BTreeMap<String, (KeyRef, KeyPair)>,
    /// Names of pairs that are in files of hosts.
    on_hosts: BTreeSet<String>,
}

impl<'w, 'c> Certificates<'w, 'c> {
    pub(crate) fn new(cache: &'c mut CertificateCache) -> Self {
        Self {
            cache,
            seen: HashMap::new(),
            kept: BTreeMap::new(),
            by_name: BTreeMap::new(),
            of_tickets: BTreeMap::new(),
            on_hosts: BTreeSet::new(),
        }
    }

    /// Returns the name of the key pair that hosts have in files for the Secret of a reference, which need not exist.
    pub(crate) fn on_hosts(
        &mut self,
        referrer: Referrer<'w>,
        reference: &'w ObjectRef,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<String, Grounds> {
        let (namespace, name) = SECRETS.find(reference.into(), referrer, &cx.grants)?;
        let key = NamespacedName::new(namespace, name);
        check_object(namespace, name).map_err(|why| (Reason::InvalidCertificateRef, why))?;
        let name = format!("Secret/{key}");
        self.on_hosts.insert(name.clone());
        Ok(name)
    }

    /// Returns the reference and the pair of a name that [`Self::get`] or [`Self::on_hosts`] gave: no pair where hosts have it. A
    /// Secret that is read for somebody else serves for both.
    pub(crate) fn published(&self, name: &str) -> Option<(KeyRef, Option<&KeyPair>)> {
        match self.by_name.get(name) {
            Some(certificate) => Some((certificate.key.clone(), Some(&*certificate.pair))),
            None if self.on_hosts.contains(name) => {
                let key = KeyRef {
                    name: name.to_owned(),
                    on_host: true,
                    ..KeyRef::default()
                };
                Some((key, None))
            }
            None => {
                let of_tickets = self.of_tickets.get(name);
                of_tickets.map(|(key, keys)| (key.clone(), Some(keys)))
            }
        }
    }

    /// Returns the key pair that `reference` of `referrer` names. A Secret that is broken has its last good one, as long as it
    /// exists and may be referred to.
    pub(crate) fn get(
        &mut self,
        referrer: Referrer<'w>,
        reference: &'w ObjectRef,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<Usable, Grounds> {
        let (namespace, name) = SECRETS.find(reference.into(), referrer, &cx.grants)?;
        let invalid = |why: String| (Reason::InvalidCertificateRef, why);
        let key = NamespacedName::new(namespace, name);
        let why = match cx.world.secrets.get(namespace, name) {
            Some(secret) => match self.parse(&key, secret) {
                Ok(certificate) => {
                    return Ok(Usable {
                        certificate,
                        fault: None,
                    });
                }
                Err(why) => why,
            },
            None if cx.world.last_good.is_unread(&key) => format!("Secret {key} cannot be read"),
            None => return Err(invalid(format!("Secret {key} does not exist"))),
        };
        let Some(certificate) = self.keep(&key, &cx.world.last_good) else {
            return Err(invalid(why));
        };
        let end = certificate.key.not_after;
        let end =
            Timestamp::from_second(end).map_or_else(|_| end.to_string(), |end| end.to_string());
        let fault = invalid(format!(
            "{why}; its last good certificate, which expires at {end}, goes on being served until the Secret is mended or \
             deleted"
        ));
        Ok(Usable {
            certificate,
            fault: Some(fault),
        })
    }

    /// Returns the last good pair of a Secret.
    fn keep(&mut self, key: &NamespacedName, last_good: &LastGoodKeys) -> Option<Arc<Certificate>> {
        if let Some(kept) = self.kept.get(key) {
            return kept.clone();
        }
        let kept = last_good.get(key).and_then(|pair| {
            let certificate = check(
                key,
                &pair.certificate_chain,
                &pair.private_key,
                &pair.ocsp_staple,
            )
            .ok()?;
            Some(Arc::new(certificate))
        });
        self.name(kept.as_ref());
        self.kept.insert(key.clone(), kept.clone());
        kept
    }

    fn parse(&mut self, key: &NamespacedName, secret: &'w Arc<Secret>) -> ParsedSecret {
        let name = (
            secret.metadata.namespace.as_str(),
            secret.metadata.name.as_str(),
        );
        if let Some(parsed) = self.seen.get(&name) {
            return parsed.clone();
        }
        let parsed = match self.cache.entries.remove(key) {
            Some((known, parsed)) if Arc::ptr_eq(&known, secret) || known == *secret => parsed,
            _ => parse(key, secret)
                .map(Arc::new)
                .map_err(|why| format!("Secret {key} {why}")),
        };
        self.name(parsed.as_ref().ok());
        self.cache
            .entries
            .insert(key.clone(), (Arc::clone(secret), parsed.clone()));
        self.seen.insert(name, parsed.clone());
        parsed
    }

    fn name(&mut self, certificate: Option<&Arc<Certificate>>) {
        let named = certificate.map(|it| (it.key.name.clone(), Arc::clone(it)));
        self.by_name.extend(named);
    }

    /// Returns the name of the `KeyRef` of the keys of session tickets that a Secret holds.
    pub(crate) fn session_ticket_keys(
        &mut self,
        namespace: &str,
        name: &str,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<String, Grounds> {
        let key = NamespacedName::new(namespace, name);
        let found = match cx.world.secrets.get(namespace, name) {
            Some(secret) => ticket_keys::read(&key, secret),
            None if cx.world.last_good.is_unread(&key) => Err("cannot be read".to_owned()),
            None => Err("does not exist".to_owned()),
        };
        let found =
            found.map_err(|why| (Reason::InvalidCertificateRef, format!("Secret {key} {why}")))?;
        let name = found.0.name.clone();
        self.of_tickets.insert(name.clone(), found);
        Ok(name)
    }

    /// Returns a key pair that [`Self::get`] returned, by the name of its `KeyRef`.
    pub(crate) fn named(&self, name: &str) -> Option<&Certificate> {
        self.by_name.get(name).map(AsRef::as_ref)
    }

    /// Forgets the pairs that this resolution did not use, and returns those that are good.
    pub(crate) fn finish(self) -> LastGoodKeys {
        let Self {
            cache, seen, kept, ..
        } = self;
        cache
            .entries
            .retain(|key, _| seen.contains_key(&(key.namespace.as_str(), key.name.as_str())));
        let good = seen.iter().filter_map(|((namespace, name), parsed)| {
            let pair = &parsed.as_ref().ok()?.pair;
            Some((NamespacedName::new(namespace, name), Arc::clone(pair)))
        });
        let kept = kept
            .into_iter()
            .filter_map(|(key, kept)| Some((key, Arc::clone(&kept?.pair))));
        good.chain(kept).collect()
    }
}

/// Reads and checks one Secret. The error completes the sentence "Secret x ...".
fn parse(key: &NamespacedName, secret: &Secret) -> Result<Certificate, String> {
    if secret.type_ != TLS_SECRET {
        return Err(format!(
            "has type {:?}; expected {TLS_SECRET:?} with tls.crt and tls.key",
            secret.type_
        ));
    }
    let part = |name: &str| {
        secret
            .get(name)
            .filter(|bytes| !bytes.is_empty())
            .ok_or_else(|| format!("has no {name}"))
    };
    let staple = secret.get(STAPLE).unwrap_or_default();
    check(key, part("tls.crt")?, part("tls.key")?, staple)
}

/// A pair of files that stands for a Secret, checked as one that is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedPair {
    /// The reference to it.
    pub key: KeyRef,
    /// The pair.
    pub pair: KeyPair,
    /// Sentences on what Envoy or clients will not like about it.
    pub advice: Vec<String>,
}

/// Checks a pair that stands for a Secret. The error calls the two parts `tls.crt` and `tls.key`, and has nothing of either.
pub fn checked_pair(
    secret: &NamespacedName,
    chain: &[u8],
    private_key: &[u8],
) -> Result<CheckedPair, String> {
    let Certificate {
        key, pair, advice, ..
    } = check(secret, chain, private_key, &[])?;
    Ok(CheckedPair {
        key,
        pair: KeyPair::clone(&pair),
        advice,
    })
}

/// Checks that both parts can be read, and that the key belongs to a certificate, which is the leaf. All else is for Envoy to
/// judge: it accepts pairs that other implementations do not, and has reasons of its own. A staple that is not of use is left out.
fn check(
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
        // Old tools append data to a certificate that is no part of it.
        encoded.push(der.get(..der.len() - rest.len()).unwrap_or_default());
        certificates.push(certificate);
    }
    let read = PrivateKey::read(&private_key).map_err(|why| format!("tls.key {why}"))?;
    let owner = certificates
        .iter()
        .position(|certificate| read.belongs_to(certificate.public_key()));
    let Some((place, leaf)) = owner.and_then(|place| Some((place, certificates.get(place)?)))
    else {
        return Err("tls.key does not belong to any certificate of tls.crt".to_owned());
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

/// Returns the staple of a Secret, if Envoy may show it with this leaf; else none, and a sentence on why it is left out. The error is
/// for a leaf that Envoy does not take without. Whether a staple is still valid is for Envoy to judge, which has a clock.
fn usable_staple(
    name: &str,
    staple: &[u8],
    leaf: &X509Certificate<'_>,
) -> Result<(Vec<u8>, Option<String>), String> {
    let fault = if staple.is_empty() {
        "is empty or not there".to_owned()
    } else {
        match OcspResponse::read(staple).and_then(|response| response.check_for(leaf)) {
            Ok(()) => return Ok((staple.to_vec(), None)),
            Err(why) => why.to_string(),
        }
    };
    if ocsp_response::is_demanded_by(leaf) {
        return Err(format!(
            "{STAPLE} {fault}; the certificate demands an OCSP staple (must-staple), and Envoy does not take it without"
        ));
    }
    let told = || format!("{STAPLE} of {name} {fault}; the certificate is shown without it");
    Ok((Vec::new(), (!staple.is_empty()).then(told)))
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
