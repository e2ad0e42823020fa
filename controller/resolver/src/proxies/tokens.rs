//! Tokens (JWT) that HTTPProxies require.

use std::sync::Arc;
use std::time::Duration;

use sesame_proto::dns_name;
use sesame_proto::schema::{TokenPolicy, TokenProvider};

use super::connections::{AuthorityRef, names, secret, secret_ref};
use super::details::Details;
use super::roots::{FoundProxies, Root};
use super::rules::{ReadRoute, RouteFault};
use crate::context::Options;
use crate::context::grants::{Grants, Referent, Referrer};
use crate::context::references::CoreReference;
use crate::ingresses::IngressClasses;
use crate::policies::key_sets::{RemoteKeySet, canonical};
use crate::policies::traffic::access::AccessCheck;
use crate::policies::traffic::jwt::{TokenCheck, check_text};
use crate::routes::rules::RuleContext;
use crate::syntax::{durations, limits};
use sesame_kinds::api::{
    AccessPart, NamespacedName, ProxyHost, ProxyJwtProvider, ProxyJwtVerification, ProxyLocalJwks,
    ProxyRemoteJwks, ProxyRoute,
};
use sesame_kinds::status::Reason;
use sesame_kinds::world::{Kind, World};

const TYPE: &str = "JWTVerificationError";

const MAX_PROVIDERS: usize = 16;

pub(super) struct TokenProviders<'w> {
    /// An error that makes all providers unusable.
    fault: Option<RouteFault>,
    default: Option<&'w str>,
    root: String,
    by_name: Vec<(&'w str, ReadProvider)>,
    /// Warnings about key sets that could not be refreshed.
    warnings: Vec<RouteFault>,
}

type ReadProvider = Result<(String, Arc<AccessCheck>), RouteFault>;

impl<'w> TokenProviders<'w> {
    pub(super) fn read(root: &Root<'w>, cx: &mut RuleContext<'_, 'w, '_>) -> Self {
        let ProxyHost {
            jwt_providers: specs,
            tls,
            ..
        } = root.virtualhost;
        let mut providers = Self {
            fault: None,
            default: None,
            root: Kind::HttpProxy.named(root.name.clone()).to_string(),
            by_name: Vec::new(),
            warnings: Vec::new(),
        };
        let has_tls = tls.as_ref().is_some_and(|it| !it.passthrough);
        let mut defaults = specs.iter().filter(|it| it.default);
        providers.default = defaults.next().map(|it| it.name.as_str());
        let again = || {
            specs.iter().enumerate().find(|(i, spec)| {
                let mut before = specs.iter().take(*i);
                before.any(|it| it.name == spec.name)
            })
        };
        let why = if specs.is_empty() {
            None
        } else if !has_tls {
            let why =
                "jwtProviders needs tls.secretName, because tokens must not be sent without TLS";
            Some(("JWTVerificationNotPermitted", why.to_owned()))
        } else if let Err(why) = limits::entries("jwtProviders", specs.len(), 0..=MAX_PROVIDERS) {
            Some(("TooManyProviders", why))
        } else if let Some((_, spec)) = again() {
            let why = format!(
                "jwtProviders has several entries with the name {:?}",
                spec.name
            );
            Some(("DuplicateProviderName", why))
        } else if defaults.next().is_some() {
            let why = "jwtProviders has several entries with default: true";
            Some(("MultipleDefaultProvidersSpecified", why.to_owned()))
        } else {
            None
        };
        if let Some((reason, why)) = why {
            providers.fault = Some(((TYPE, reason), why));
            return providers;
        }
        let read = specs.iter().map(|spec| {
            let name = &spec.name;
            let read = read(spec, root, cx).map(|(check, note)| {
                let note = note.map(|why| format!("jwtProviders {name:?}: {why}"));
                let warned = note.map(|why| ((TYPE, "RemoteJWKSOutdated"), why));
                providers.warnings.extend(warned);
                check
            });
            let read = read
                .map_err(|(reason, why)| ((TYPE, reason), format!("jwtProviders {name:?}: {why}")));
            (name.as_str(), read)
        });
        providers.by_name = read.collect();
        providers
    }

    pub(super) fn report(&self, root: &NamespacedName, details: &mut Details) {
        let provider_faults = self.by_name.iter().filter_map(|(_, it)| it.as_ref().err());
        for (code, why) in self.fault.iter().chain(provider_faults) {
            details.error(root, *code, why);
        }
        for (code, why) in &self.warnings {
            details.warn(root, *code, why);
        }
    }

    fn of_route(
        &self,
        policy: Option<&ProxyJwtVerification>,
    ) -> Option<Result<&(String, Arc<AccessCheck>), RouteFault>> {
        let fault = |reason, why: String| Some(Err(((TYPE, reason), why)));
        let required = match policy {
            Some(ProxyJwtVerification { require, disabled })
                if *disabled && !require.is_empty() =>
            {
                let why = "jwtVerificationPolicy: expected either require or disabled";
                return fault("InvalidJWTVerificationPolicy", why.to_owned());
            }
            Some(policy) if policy.disabled => return None,
            Some(policy) if !policy.require.is_empty() => policy.require.as_str(),
            _ => self.default?,
        };
        if let Some(fault) = &self.fault {
            return Some(Err(fault.clone()));
        }
        let provider = self.by_name.iter().find(|(name, _)| *name == required);
        let Some((_, provider)) = provider else {
            let why = format!("jwtVerificationPolicy.require {required:?} is not in jwtProviders");
            return fault("JWTProviderNotDefined", why);
        };
        Some(provider.as_ref().map_err(Clone::clone))
    }
}

impl ReadRoute<'_> {
    pub(super) fn verify(
        &mut self,
        providers: &TokenProviders<'_>,
        (index, route): (usize, &ProxyRoute),
    ) {
        let policy = route.jwt_verification_policy.as_ref();
        match providers.of_route(policy) {
            None => {
                if providers.default.is_some() {
                    self.exempt_from(&providers.root, AccessPart::Jwt);
                }
            }
            Some(Ok((name, check))) => {
                let filters = self.rule.filters.take().unwrap_or_default();
                let mut filters = Arc::unwrap_or_clone(filters);
                filters.require(name, Arc::clone(check));
                self.rule.filters = Some(Arc::new(filters));
                self.rule.protects = true;
            }
            Some(Err(fault)) => self.refuse(index, fault),
        }
    }
}

type NotedProvider = ((String, Arc<AccessCheck>), Option<String>);

fn read<'w>(
    spec: &'w ProxyJwtProvider,
    root: &Root<'w>,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> Result<NotedProvider, (&'static str, String)> {
    let ProxyJwtProvider {
        name,
        default: _,
        issuer,
        audiences,
        remote_jwks,
        local_jwks,
        forward_jwt,
    } = spec;
    if !dns_name::is_dns_label(name) {
        let why = "the name is not valid; expected lower case letters, digits and `-`";
        return Err(("ProviderNameInvalid", why.to_owned()));
    }
    limits::entries("audiences", audiences.len(), 0..=TokenPolicy::MAX_ENTRIES)
        .map_err(|why| ("AudiencesInvalid", why))?;
    for audience in audiences {
        check_text("audiences", audience).map_err(|why| ("AudiencesInvalid", why))?;
    }
    if !issuer.is_empty() {
        check_text("issuer", issuer).map_err(|why| ("IssuerInvalid", why))?;
    }
    let (jwks, note) = match (remote_jwks, local_jwks) {
        (Some(spec), None) => {
            let set = remote(spec, &root.name.namespace)?;
            permitted(spec, cx)?;
            let read = set.read(cx.cx);
            read.map_err(|why| ("RemoteJWKSUnavailable", why))?
        }
        (None, Some(spec)) => {
            let keys = local(spec, cx).map_err(|why| ("LocalJWKSInvalid", why))?;
            (keys, None)
        }
        (Some(_), Some(_)) => {
            let why = "expected either remoteJWKS or localJWKS";
            return Err(("JWKSSourceConflict", why.to_owned()));
        }
        (None, None) => {
            let why = "expected remoteJWKS or localJWKS";
            return Err(("JWKSSourceMissing", why.to_owned()));
        }
    };
    let provider = TokenProvider {
        name: name.clone(),
        issuer: issuer.clone(),
        audiences: audiences.clone(),
        jwks: jwks.to_string(),
        sources: Vec::new(),
    };
    let owner = Kind::HttpProxy.named(root.name.clone());
    let owner = format!("{owner}/jwtProviders/{name}");
    let tokens = TokenCheck::of_provider(&owner, provider, *forward_jwt);
    let check = Arc::new(AccessCheck::of_tokens(tokens));
    Ok(((owner, check), note))
}

fn remote<'w>(
    spec: &'w ProxyRemoteJwks,
    namespace: &'w str,
) -> Result<RemoteKeySet<'w>, (&'static str, String)> {
    let ProxyRemoteJwks {
        uri,
        validation,
        timeout,
        cache_duration,
        dns_lookup_family,
    } = spec;
    let duration = |reason, field: &str, text: &str| match text {
        "" => Ok(None),
        text => {
            let read = durations::of_go(text).map(Duration::from_millis);
            read.map(Some)
                .map_err(|why| (reason, format!("remoteJWKS.{field}: {why}")))
        }
    };
    duration("RemoteJWKSTimeoutInvalid", "timeout", timeout)?;
    let reason = "RemoteJWKSCacheDurationInvalid";
    let interval = duration(reason, "cacheDuration", cache_duration)?;
    if !["", "auto", "all", "v4", "v6"].contains(&dns_lookup_family.as_str()) {
        let why = format!(
            "remoteJWKS.dnsLookupFamily {dns_lookup_family:?} is unknown; expected auto, v4 or v6"
        );
        return Err(("RemoteJWKSDNSLookupFamilyInvalid", why));
    }
    let authorities = validation.as_ref().map(|it| secret(&it.ca_secret));
    let authorities = authorities.map(|(of, name)| (of.unwrap_or(namespace), name));
    let set = RemoteKeySet::of_proxy(uri, interval, authorities);
    let reason = match uri.split_once("://") {
        Some((scheme, _)) if scheme != "https" => "RemoteJWKSSchemeInvalid",
        _ => "RemoteJWKSURIInvalid",
    };
    let set = set.map_err(|why| (reason, format!("remoteJWKS.{why}")))?;
    if has_impossible_port(uri) {
        let why = format!("remoteJWKS.uri {uri:?}: expected a port from 1 to 65535");
        return Err(("RemoteJWKSPortInvalid", why));
    }
    if let Some(validation) = validation {
        let invalid = |why| ("RemoteJWKSUpstreamValidationInvalid", why);
        let names =
            names(validation).map_err(|why| invalid(format!("remoteJWKS.validation.{why}")))?;
        let host = set.host();
        if !names.iter().any(|it| it.eq_ignore_ascii_case(host)) {
            return Err(invalid(format!(
                "remoteJWKS.validation.subjectName must be the host of the URI, {host:?}"
            )));
        }
    }
    Ok(set)
}

fn has_impossible_port(uri: &str) -> bool {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // The colons of an IPv6 address are in brackets.
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let port = port.filter(|it| !it.contains(']'));
    port.is_some_and(|it| it.parse::<u16>().map_or(true, |port| port == 0))
}

fn permitted<'w>(
    spec: &'w ProxyRemoteJwks,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> Result<(), (&'static str, String)> {
    let Some(validation) = &spec.validation else {
        return Ok(());
    };
    let (namespace, name) = secret(&validation.ca_secret);
    let authorities = CoreReference::of_kind(Kind::Secret.as_str(), namespace, name);
    let bundles = &mut cx.backends.ca_bundles;
    let bundle = bundles.of_secrets(cx.referrer, authorities, None, cx.cx);
    bundle.map(drop).map_err(|(reason, why)| {
        let reason = match reason {
            Reason::RefNotPermitted => "RemoteJWKSCACertificateNotDelegated",
            _ => "RemoteJWKSUpstreamValidationInvalid",
        };
        (reason, format!("remoteJWKS.validation.caSecret: {why}"))
    })
}

fn delegated(spec: &ProxyRemoteJwks, namespace: &str, grants: &Grants<'_>) -> bool {
    spec.validation.as_ref().is_none_or(|validation| {
        let (of, name) = secret(&validation.ca_secret);
        let from = Referrer::new(Kind::HttpProxy, namespace);
        let to = Referent::new(Kind::Secret, of.unwrap_or(namespace), name);
        grants.check(from, to).is_ok()
    })
}

fn local(spec: &ProxyLocalJwks, cx: &mut RuleContext<'_, '_, '_>) -> Result<Arc<str>, String> {
    let ProxyLocalJwks { secret_name, key } = spec;
    let namespace = cx.referrer.namespace;
    let at = format!("localJWKS: Secret {namespace}/{secret_name}");
    let secret = cx.cx.world.secrets.get(namespace, secret_name);
    let secret = secret.ok_or_else(|| format!("{at} does not exist"))?;
    if secret.type_ != "Opaque" {
        return Err(format!("{at} has type {:?}; expected Opaque", secret.type_));
    }
    let text = secret.get(key);
    let text = text.ok_or_else(|| format!("{at} has no key {key:?}"))?;
    let text = str::from_utf8(text).map_err(|_| format!("{at}: {key:?} is not UTF-8"))?;
    let keys = cx.cx.key_sets.get(text, canonical);
    keys.map_err(|why| format!("{at}: {key:?} {why}"))
}

fn providers<'r, 'w>(
    roots: &'r [Root<'w>],
) -> impl Iterator<Item = (&'r Root<'w>, &'w ProxyJwtProvider)> {
    let root_providers = |root: &'r Root<'w>| {
        let providers = root.virtualhost.jwt_providers.iter();
        providers.map(move |provider| (root, provider))
    };
    roots.iter().flat_map(root_providers)
}

pub(crate) fn remote_key_sets<'w>(
    world: &'w World,
    options: &'w Options,
) -> Vec<(&'w str, RemoteKeySet<'w>)> {
    let hosts = (world.http_proxies.iter()).filter_map(|it| it.spec.virtualhost.as_ref());
    let mut all = hosts.flat_map(|host| &host.jwt_providers);
    if !all.any(|it| it.remote_jwks.is_some()) {
        return Vec::new();
    }
    let classes = IngressClasses::check(world, options);
    let found = FoundProxies::find(world, &classes);
    let grants = Grants::new(world);
    let sets = providers(&found.roots).filter_map(|(root, provider)| {
        let namespace = root.proxy.metadata.namespace.as_str();
        let spec = provider.remote_jwks.as_ref()?;
        if !delegated(spec, namespace, &grants) {
            return None;
        }
        Some((namespace, remote(spec, namespace).ok()?))
    });
    sets.collect()
}

pub(super) fn secret_refs<'w>(roots: &[Root<'w>]) -> Vec<AuthorityRef<'w>> {
    let references = providers(roots).flat_map(|(root, provider)| {
        let validation = provider.remote_jwks.as_ref();
        let validation = validation.and_then(|it| it.validation.as_ref());
        let local = provider.local_jwks.as_ref();
        let secrets = [
            validation.map(|it| secret_ref(&it.ca_secret)),
            local.map(|it| secret_ref(&it.secret_name)),
        ];
        let (gateway, proxy) = (root.gateway, root.proxy);
        secrets
            .into_iter()
            .flatten()
            .map(move |secret| AuthorityRef {
                gateway,
                namespace: &proxy.metadata.namespace,
                secret,
            })
    });
    references.collect()
}
