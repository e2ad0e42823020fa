//! Key sets (JWKS) of token issuers, and configuration documents of OpenID providers. The controller
//! or an agent fetches them into ConfigMaps in the controller's namespace. Resolution reads only these
//! ConfigMaps.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sesame_proto::discovery::{ProviderDocument, document_uri};
use sesame_proto::jwks;
use sesame_proto::key_sets::{
    FetchedDocument, KeySetCopy, KeySetRequest, KeySetRequests, KeySetTrust, copy_name,
};

use super::targets;
use crate::context::{Options, ResolveContext};
use crate::proxies;
use crate::syntax::durations;
use crate::syntax::limits::MAX_PEM_BYTES;
use crate::syntax::names::CA_KEY;
use sesame_kinds::api::{JwksAuthorities, NamespacedName, OidcProvider, RemoteJwks};
use sesame_kinds::world::{Kind, ObjectKey, World};

const MAX_PER_NAMESPACE: usize = 8;
const MAX_KEY_SETS: usize = 256;
const MAX_URI: usize = 2048;
/// As in the schema.
const MAX_ISSUER: usize = 2000;
const INTERVAL: Duration = Duration::from_secs(300);
/// Minimum fetch interval. Lower values are raised to it.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum fetch interval. Higher values are reduced to it.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteKeySet<'w> {
    /// The URI of a key set, or a provider's issuer.
    uri: &'w str,
    is_issuer: bool,
    /// `None` means the system's CAs.
    authorities: Option<Authorities<'w>>,
    interval: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Authorities<'w> {
    kind: Kind,
    namespace: &'w str,
    name: &'w str,
    key: &'w str,
}

impl<'w> RemoteKeySet<'w> {
    pub(super) fn of_policy(spec: &'w RemoteJwks, namespace: &'w str) -> Result<Self, String> {
        let RemoteJwks {
            uri,
            cache_duration,
            ca_certificate_ref,
        } = spec;
        let interval = durations::read(".cacheDuration", cache_duration.as_deref())?;
        let authorities = ca_certificate_ref.as_ref();
        let authorities = authorities.map(|it| Authorities::of(it, namespace));
        let set = Self::new(uri, interval.map(Duration::from_millis), authorities);
        set.map_err(|why| format!(".{why}"))
    }

    /// Returns `None` if the provider's document is not needed.
    pub(super) fn of_provider(
        spec: &'w OidcProvider,
        namespace: &'w str,
    ) -> Option<Result<Self, String>> {
        let issuer = spec.discovered()?;
        let authorities = spec.ca_certificate_ref.as_ref();
        let authorities = authorities.map(|it| Authorities::of(it, namespace));
        let is_valid = !issuer.contains('?') && issuer.len() <= MAX_ISSUER;
        let checked = check_uri(issuer).and_then(|()| {
            is_valid.then_some(()).ok_or_else(|| {
                format!("is not valid; expected at most {MAX_ISSUER} characters, and no query")
            })
        });
        Some(match checked {
            Err(why) => Err(format!(".issuer {issuer:?} {why}")),
            Ok(()) => Ok(Self {
                uri: issuer,
                is_issuer: true,
                authorities,
                interval: INTERVAL,
            }),
        })
    }

    pub(crate) fn of_proxy(
        uri: &'w str,
        interval: Option<Duration>,
        authorities: Option<(&'w str, &'w str)>,
    ) -> Result<Self, String> {
        let authorities = authorities.map(|(namespace, name)| Authorities {
            kind: Kind::Secret,
            namespace,
            name,
            key: CA_KEY,
        });
        Self::new(uri, interval, authorities)
    }

    fn new(
        uri: &'w str,
        interval: Option<Duration>,
        authorities: Option<Authorities<'w>>,
    ) -> Result<Self, String> {
        check_uri(uri).map_err(|why| format!("uri {uri:?} {why}"))?;
        let interval = interval.unwrap_or(INTERVAL);
        Ok(Self {
            uri,
            is_issuer: false,
            authorities,
            interval: interval.clamp(MIN_INTERVAL, MAX_INTERVAL),
        })
    }

    pub(crate) fn host(&self) -> &'w str {
        let rest = self.uri.strip_prefix("https://").unwrap_or(self.uri);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let port = authority.rsplit_once(':');
        match port {
            Some((host, port)) if port.bytes().all(|it| it.is_ascii_digit()) => host,
            _ => authority,
        }
    }

    /// Returns the name of the ConfigMap that holds the fetched copy.
    fn name(&self, options: &Options) -> String {
        let authorities = self.authorities.map(|it| {
            let Authorities {
                kind,
                namespace,
                name,
                key,
            } = it;
            format!("{kind}/{namespace}/{name}/{key}")
        });
        let mut authorities = authorities.unwrap_or_default();
        if self.is_issuer {
            // A key set with the same URI has another name, and so has an issuer that differs only in a
            // slash at the end.
            authorities.push_str("\0issuer\0");
            authorities.push_str(self.uri);
        }
        copy_name(&options.controller_name, &self.fetched(), &authorities)
    }

    fn fetched(&self) -> Cow<'w, str> {
        if self.is_issuer {
            document_uri(self.uri).into()
        } else {
            self.uri.into()
        }
    }

    fn request(&self, world: &World, options: &Options) -> KeySetRequest {
        let pem = self.authorities.map(|it| it.pem(world));
        KeySetRequest {
            uri: self.fetched().into_owned(),
            document: if self.is_issuer {
                FetchedDocument::Provider(self.uri.to_owned())
            } else {
                FetchedDocument::KeySet
            },
            trust: match pem {
                None => KeySetTrust::System,
                Some(Some(pem)) => KeySetTrust::Pem(pem.into()),
                Some(None) => KeySetTrust::Unavailable,
            },
            interval: self.interval,
            permits_local: options.allow_local_endpoints,
        }
    }

    /// Returns the fetched keys, and a note if the latest fetch failed.
    pub(crate) fn read(
        &self,
        cx: &mut ResolveContext<'_, '_>,
    ) -> Result<(Arc<str>, Option<String>), String> {
        let (jwks, note) = self.copy(cx)?;
        let keys = cx.key_sets.get(&jwks, canonical);
        let keys = keys.map_err(|why| format!("{}: the fetched key set {why}", self.uri))?;
        Ok((keys, note))
    }

    /// Returns the provider's fetched document, and a note if the latest fetch failed.
    pub(super) fn read_provider(
        &self,
        cx: &ResolveContext<'_, '_>,
    ) -> Result<(ProviderDocument, Option<String>), String> {
        let (text, note) = self.copy(cx)?;
        let document = ProviderDocument::parse(&text, self.uri);
        let document = document.map_err(|why| format!("{}: the document {why}", self.fetched()))?;
        Ok((document, note))
    }

    fn copy(&self, cx: &ResolveContext<'_, '_>) -> Result<(String, Option<String>), String> {
        let uri = &*self.fetched();
        let name = self.name(cx.options);
        let map = cx.world.config_maps.get(&cx.options.namespace, &name);
        let copy = map.map(|map| KeySetCopy::from_data(&map.data));
        let KeySetCopy {
            uri: _,
            jwks,
            fetched_at,
            error,
        } = copy.filter(|it| it.uri == uri).unwrap_or_default();
        if jwks.is_empty() && error.is_empty() {
            return Err(format!(
                "{uri} has not been fetched yet (at most {MAX_PER_NAMESPACE} per namespace are fetched)"
            ));
        }
        if jwks.is_empty() {
            return Err(format!("{uri} cannot be fetched: {error}"));
        }
        let note = (!error.is_empty()).then(|| {
            format!("{uri} was last fetched at {fetched_at}, but fetching now fails: {error}")
        });
        Ok((jwks, note))
    }
}

impl<'w> Authorities<'w> {
    fn of(JwksAuthorities { name, key }: &'w JwksAuthorities, namespace: &'w str) -> Self {
        Self {
            kind: Kind::ConfigMap,
            namespace,
            name,
            key: key.as_deref().unwrap_or(CA_KEY),
        }
    }
}

impl Authorities<'_> {
    fn pem<'a>(&self, world: &'a World) -> Option<&'a str> {
        let Self {
            kind,
            namespace,
            name,
            key,
        } = *self;
        let pem: &str = if kind == Kind::Secret {
            str::from_utf8(world.secrets.get(namespace, name)?.get(key)?).ok()?
        } else {
            world.config_maps.get(namespace, name)?.data.get(key)?
        };
        (pem.len() <= MAX_PEM_BYTES).then_some(pem)
    }
}

pub(crate) fn canonical(text: &str) -> Result<Arc<str>, String> {
    let set = jwks::canonical(text).map(Arc::from);
    set.map_err(|why| why.to_string())
}

/// Checks the URI, which must not contain a password, because it appears in statuses and metrics.
fn check_uri(uri: &str) -> Result<(), String> {
    if uri.len() > MAX_URI {
        return Err(format!("has more than {MAX_URI} characters"));
    }
    let rest = uri.strip_prefix("https://");
    let authority = rest.and_then(|rest| rest.split(['/', '?']).next());
    let is_visible = uri.bytes().all(|byte| byte.is_ascii_graphic());
    match authority {
        Some(authority) if authority.contains('@') => {
            Err("must not contain credentials".to_owned())
        }
        Some(authority) if !authority.is_empty() && is_visible && !uri.contains('#') => Ok(()),
        _ => Err("is not valid; expected an absolute https URI".to_owned()),
    }
}

/// The remote key sets that the AccessPolicies and HTTPProxies of a world use, within the limits.
pub struct RemoteKeySets<'w> {
    /// Keyed by the name of the ConfigMap that holds the fetched copy.
    by_name: BTreeMap<String, RemoteKeySet<'w>>,
    world: &'w World,
    options: &'w Options,
}

impl<'w> RemoteKeySets<'w> {
    /// Selects the key sets. In each namespace, AccessPolicies come first, oldest first, followed
    /// by HTTPProxies.
    pub fn of(world: &'w World, options: &'w Options) -> Self {
        let policies = targets::by_age(&world.access_policies);
        let all = policies.into_iter().flat_map(|policy| {
            let namespace = policy.metadata.namespace.as_str();
            let providers = policy.spec.jwt.iter().flat_map(|jwt| &jwt.providers);
            let remote = providers.filter_map(|it| it.jwks.remote.as_ref());
            let key_sets = remote.map(move |spec| RemoteKeySet::of_policy(spec, namespace));
            let login = policy.spec.oidc.iter();
            let issuers =
                login.filter_map(move |it| RemoteKeySet::of_provider(&it.provider, namespace));
            let valid = key_sets.chain(issuers).filter_map(Result::ok);
            valid.map(move |set| (namespace, set))
        });
        let mut by_namespace: BTreeMap<&str, Vec<(String, RemoteKeySet<'_>)>> = BTreeMap::new();
        for (namespace, set) in all.chain(proxies::remote_key_sets(world, options)) {
            let name = set.name(options);
            let own = by_namespace.entry(namespace).or_default();
            if let Some((_, known)) = own.iter_mut().find(|(known, _)| *known == name) {
                known.interval = known.interval.min(set.interval);
            } else if own.len() < MAX_PER_NAMESPACE {
                own.push((name, set));
            }
        }
        // Take one key set from each namespace in turn, so that no namespace crowds out another.
        let mut by_name: BTreeMap<String, RemoteKeySet<'_>> = BTreeMap::new();
        for turn in 0..MAX_PER_NAMESPACE {
            for (name, set) in by_namespace.values().filter_map(|own| own.get(turn)) {
                if let Some(known) = by_name.get_mut(name) {
                    known.interval = known.interval.min(set.interval);
                } else if by_name.len() < MAX_KEY_SETS {
                    by_name.insert(name.clone(), *set);
                }
            }
        }
        Self {
            by_name,
            world,
            options,
        }
    }

    /// Returns the key sets to fetch, keyed by the name of the ConfigMap that holds the fetched
    /// copy.
    pub fn requests(&self) -> KeySetRequests {
        let requests = self
            .by_name
            .iter()
            .map(|(name, set)| (name.clone(), set.request(self.world, self.options)));
        requests.collect()
    }

    /// Returns the objects that contain CA certificates or fetched copies.
    pub fn references(&self) -> BTreeSet<ObjectKey> {
        let authorities = self.by_name.values().filter_map(|set| set.authorities);
        let authorities =
            authorities.map(|it| it.kind.named(NamespacedName::new(it.namespace, it.name)));
        let copies = self.by_name.keys().map(|name| {
            let name = NamespacedName::new(&self.options.namespace, name);
            Kind::ConfigMap.named(name)
        });
        authorities.chain(copies).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_uris_are_valid() {
        for uri in ["https://issuer.test", "https://issuer.test:8443/keys?x=1"] {
            assert_eq!(check_uri(uri), Ok(()));
        }
        for uri in [
            "",
            "https://",
            "https:///keys",
            "http://issuer.test/keys",
            "https://me:secret@issuer.test/keys",
            "https://issuer.test/a b",
            "https://issuer.test/#keys",
        ] {
            assert!(check_uri(uri).is_err(), "{uri}");
        }
    }
}
