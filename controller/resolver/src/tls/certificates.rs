//! Looks up key pairs in Secrets, and checks ReferenceGrants. Errors never contain any part of a
//! private key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::KeyRef;

use super::key_pairs::{Certificate, check, check_type, parse};
use super::ticket_keys::{self, NamedTicketKeys};
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::context::references::Expected;
use crate::syntax::names::check_object;
use sesame_kinds::api::{NamespacedName, ObjectRef, Secret};
use sesame_kinds::status::{Grounds, Reason};
use sesame_kinds::world::{Kind, LastGoodKeys, ObjectKey};

pub(super) const SECRETS: Expected = Expected {
    group: "",
    kind: "Secret",
    default: "Secret",
    wrong_kind: Reason::InvalidCertificateRef,
    wrong_name: Reason::InvalidCertificateRef,
};
pub(crate) struct Usable {
    pub(crate) certificate: Arc<Certificate>,
    /// Why the Secret is broken, if `certificate` is its last good key pair.
    pub(crate) fault: Option<Grounds>,
}

type ParsedSecret = Result<Arc<Certificate>, String>;

/// Parsed Secrets that a Resolver keeps between resolutions. The cache never affects results.
#[derive(Debug, Default)]
pub(crate) struct CertificateCache {
    entries: HashMap<NamespacedName, (Arc<Secret>, ParsedSecret)>,
}

pub(crate) struct Certificates<'w, 'c> {
    cache: &'c mut CertificateCache,
    seen: HashMap<(&'w str, &'w str), ParsedSecret>,
    /// Last good key pairs of broken Secrets. `None` if missing or invalid.
    kept: BTreeMap<NamespacedName, Option<Arc<Certificate>>>,
    by_name: BTreeMap<String, Arc<Certificate>>,
    /// Keyed by the `KeyRef`'s name.
    ticket_keys: BTreeMap<String, (KeyRef, KeyPair)>,
    on_hosts: BTreeSet<String>,
}

impl<'w, 'c> Certificates<'w, 'c> {
    pub(crate) fn new(cache: &'c mut CertificateCache) -> Self {
        Self {
            cache,
            seen: HashMap::new(),
            kept: BTreeMap::new(),
            by_name: BTreeMap::new(),
            ticket_keys: BTreeMap::new(),
            on_hosts: BTreeSet::new(),
        }
    }

    /// The reference must be valid, but the Secret need not exist.
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

    /// `name` must come from [`Self::get`], [`Self::on_hosts`] or [`Self::session_ticket_keys`].
    /// Keys on hosts have no pair.
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
                let found = self.ticket_keys.get(name);
                found.map(|(key, keys)| (key.clone(), Some(keys)))
            }
        }
    }

    /// Returns the last good pair if the Secret is broken. Fails if the Secret was deleted or the
    /// reference is not permitted.
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
            Some(secret) => {
                let typed =
                    check_type(secret, referrer).map_err(|why| format!("Secret {key} {why}"));
                match typed.and_then(|()| self.parse(&key, secret)) {
                    Ok(certificate) => {
                        return Ok(Usable {
                            certificate,
                            fault: None,
                        });
                    }
                    Err(why) => why,
                }
            }
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
            "{why}; its last valid certificate, which expires at {end}, is served until the \
            Secret is fixed or deleted"
        ));
        Ok(Usable {
            certificate,
            fault: Some(fault),
        })
    }

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

    /// Uses the last good keys if the Secret is broken, but not if it was deleted.
    pub(crate) fn session_ticket_keys(
        &mut self,
        namespace: &str,
        name: &str,
        cx: &ResolveContext<'w, '_>,
    ) -> NamedTicketKeys {
        let key = NamespacedName::new(namespace, name);
        let last_good = &cx.world.last_good;
        let kept = || ticket_keys::kept(last_good.get(&key)?);
        let (found, fault) = match cx.world.secrets.get(namespace, name) {
            Some(secret) => match ticket_keys::read(&key, secret) {
                Ok(found) => (Some(found), None),
                Err(why) => (kept(), Some(why)),
            },
            None if last_good.is_unread(&key) => {
                let why = "cannot be read".to_owned();
                (kept(), Some(why))
            }
            None => (None, Some("does not exist".to_owned())),
        };
        let name = format!("Secret/{key}");
        let instead = match &found {
            Some(_) => "its last valid keys are used until the Secret is fixed or deleted",
            None => "each host generates its own keys",
        };
        self.ticket_keys.extend(found.map(|it| (name.clone(), it)));
        let message = |why| format!("Secret {key} {why}; {instead}");
        NamedTicketKeys {
            name,
            fault: fault.map(|why| (Reason::InvalidCertificateRef, message(why))),
        }
    }

    /// Finds only pairs that [`Self::get`] has already returned.
    pub(crate) fn named(&self, name: &str) -> Option<&Certificate> {
        self.by_name.get(name).map(AsRef::as_ref)
    }

    /// Evicts unused Secrets from the cache, and returns the last good keys of all used ones.
    pub(crate) fn finish(self) -> LastGoodKeys {
        let Self {
            cache,
            seen,
            kept,
            ticket_keys,
            ..
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
        let ticket_keys = ticket_keys.into_values().filter_map(|(_, keys)| {
            let secret = ObjectKey::parse_as(Kind::Secret, &keys.name)?;
            Some((secret, Arc::new(keys)))
        });
        good.chain(kept).chain(ticket_keys).collect()
    }
}
