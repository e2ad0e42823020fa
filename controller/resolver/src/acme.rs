//! Finds the certificates to order by ACME: Secrets of annotated Gateways' and ListenerSets' HTTPS
//! listeners.
//!
//! A Secret that lacks the label of issued Secrets belongs to another program, and is not requested.
//! Each obstacle becomes part of the message of the object's `Accepted` condition.

mod http_listeners;

use std::collections::BTreeSet;

use sesame_acme::{
    ACME_KEY, AcmeIssuer, CertificateRequest, CertificateRequests, ChallengeMethod, ChallengeParent,
};

use self::http_listeners::HttpListeners;
use crate::context::{ResolveContext, ResolvedFor};
use crate::gateways::CheckedGateway;
use crate::listeners::sets::CheckedListenerSet;
use crate::listeners::{CheckedListener, ListenerOwner};
use crate::settings::acme::{external_account, is_operators, issuer};
use crate::syntax::hostnames::Hostname;
use crate::syntax::names;
use crate::tls::certificate_source::CertificateSource;
use sesame_kinds::api::{Metadata, NamespacedName, ObjectRef};
use sesame_kinds::world::Kind;

/// Maximum number of hostnames per certificate, as at public CAs.
const MAX_HOSTNAMES: usize = 100;
/// Port to which CAs send HTTP-01 requests.
const HTTP: u16 = 80;

pub(crate) fn requests(
    gateways: &mut [CheckedGateway<'_>],
    cx: &ResolveContext<'_, '_>,
) -> CertificateRequests {
    let mut requests = CertificateRequests::new();
    for gateway in gateways {
        let asks = asks(gateway.metadata);
        let http = (asks == Ok(true)).then(|| HttpListeners::of(gateway));
        let found = match (asks, &http) {
            (Ok(_), None) => Vec::new(),
            (Ok(_), Some(http)) => Requester::of_gateway(gateway, http).request(cx, &mut requests),
            (Err(why), _) => vec![why],
        };
        let sets = gateway.sets.iter();
        let of_sets: Vec<Vec<String>> = sets
            .map(|set| of_set(gateway, set, http.as_ref(), cx, &mut requests))
            .collect();
        gateway.not_understood.extend(named(found));
        for (set, found) in gateway.sets.iter_mut().zip(of_sets) {
            set.notes = named(found).collect();
        }
    }
    requests
}

/// Returns whether the annotation requests certificates.
fn asks(metadata: &Metadata) -> Result<bool, String> {
    match metadata.annotations.get(ACME_KEY) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            Err(format!("{other:?}: expected \"true\" or \"false\""))
        }
    }
}

fn named(obstacles: Vec<String>) -> impl Iterator<Item = String> {
    let obstacles = obstacles.into_iter();
    obstacles.map(|why| format!("metadata.annotations[{ACME_KEY}]: {why}"))
}

/// Both owners must agree: the Gateway's because it uses the operator's account, the ListenerSet's
/// because Secrets are written in its namespace.
fn of_set(
    gateway: &CheckedGateway<'_>,
    set: &CheckedListenerSet<'_>,
    http: Option<&HttpListeners<'_, '_>>,
    cx: &ResolveContext<'_, '_>,
    requests: &mut CertificateRequests,
) -> Vec<String> {
    if set.owner.kind != Kind::ListenerSet || !set.refused.good() {
        return Vec::new();
    }
    match (asks(set.metadata), http) {
        (Ok(false), _) => Vec::new(),
        (Ok(true), Some(http)) => Requester::of_set(gateway, set, http).request(cx, requests),
        (Ok(true), None) => vec![format!(
            "no certificates are ordered, because {} lacks the annotation; its owner must add it",
            gateway.owner.display()
        )],
        (Err(why), _) => vec![why],
    }
}

/// The object whose listeners refer to Secrets in its own namespace.
struct Requester<'a, 'w> {
    gateway: &'a CheckedGateway<'w>,
    owner: &'a ListenerOwner<'w>,
    listeners: &'a [CheckedListener<'w>],
    http: &'a HttpListeners<'a, 'w>,
}

impl<'a, 'w> Requester<'a, 'w> {
    fn of_gateway(gateway: &'a CheckedGateway<'w>, http: &'a HttpListeners<'a, 'w>) -> Self {
        Self {
            gateway,
            owner: &gateway.owner,
            listeners: gateway.own_listeners(),
            http,
        }
    }

    fn of_set(
        gateway: &'a CheckedGateway<'w>,
        set: &'a CheckedListenerSet<'w>,
        http: &'a HttpListeners<'a, 'w>,
    ) -> Self {
        Self {
            gateway,
            owner: &set.owner,
            listeners: gateway.listeners_of(set),
            http,
        }
    }

    /// Returns obstacles, each with its remedy.
    fn request(
        &self,
        cx: &ResolveContext<'_, '_>,
        requests: &mut CertificateRequests,
    ) -> Vec<String> {
        if self.gateway.parameters_refused || !self.gateway.accepted.good() {
            return Vec::new();
        }
        let mut issuer = match self.issuer(cx) {
            Ok(issuer) => issuer,
            Err(why) => return vec![format!("no certificates are ordered, because {why}")],
        };
        let (external, fault) = external_account(&self.gateway.settings.acme, cx);
        issuer.external = external;
        // A ListenerSet's author may not see the operator's configuration.
        let fault = fault.filter(|_| self.owner.kind == Kind::Gateway);
        let mut obstacles: Vec<String> = fault.into_iter().collect();
        for listener in self.listeners {
            if !uses_secrets(listener) {
                continue;
            }
            let tls = listener.spec.tls.iter();
            for reference in tls.flat_map(|tls| &tls.certificate_refs) {
                let added = self.add(listener, reference, &issuer, cx, requests);
                let name = &listener.spec.name;
                obstacles.extend(added.err().map(|why| format!("listener {name:?}: {why}")));
            }
        }
        obstacles
    }

    fn is_operators(&self, cx: &ResolveContext<'_, '_>) -> bool {
        is_operators(&self.gateway.settings.acme, self.owner.namespace, cx)
    }

    fn issuer(&self, cx: &ResolveContext<'_, '_>) -> Result<AcmeIssuer, &'static str> {
        let settings = &self.gateway.settings;
        let in_cluster = cx.options.resolved_for == ResolvedFor::Cluster;
        let issuer = issuer(&settings.acme.spec).ok_or(
            "spec.acme.termsAgreed is not true in the SesameConfiguration of the controller or the \
             GatewayClass; set it to true",
        )?;
        let is_dns = issuer.method == ChallengeMethod::Dns01;
        if is_dns && in_cluster && !cx.options.has_acme_dns_hook {
            return Err(
                "spec.acme.challenge is DNS01, which needs a program that changes DNS records; \
                 start the controller with --acme-dns-hook, or choose HTTP01",
            );
        }
        // The operator's program can validate hostnames that this namespace does not serve.
        if is_dns && self.owner.namespace != self.gateway.owner.namespace {
            return Err(
                "spec.acme.challenge is DNS01, which orders only for the Gateway's own namespace; \
                 choose HTTP01",
            );
        }
        // The program adds records for every hostname of the operator's zones.
        if is_dns && !self.is_operators(cx) {
            return Err(
                "spec.acme.challenge is DNS01, which orders only for Gateways in the namespace of \
                 the SesameConfiguration that sets spec.acme; move the Gateway, or choose HTTP01",
            );
        }
        let rollout = settings.rollout.as_ref();
        if in_cluster && !is_dns && rollout.is_some_and(|it| !it.stages.is_empty()) {
            return Err(
                "spec.rollout.stages keeps challenges from most hosts; remove the stages, or \
                 choose DNS01",
            );
        }
        Ok(issuer)
    }

    fn add(
        &self,
        listener: &CheckedListener<'_>,
        reference: &ObjectRef,
        issuer: &AcmeIssuer,
        cx: &ResolveContext<'_, '_>,
        requests: &mut CertificateRequests,
    ) -> Result<(), String> {
        let namespace = self.owner.namespace;
        let secret = NamespacedName::new(namespace, &reference.name);
        let is_secret = reference.group.as_deref().unwrap_or_default().is_empty()
            && reference.kind.as_deref().unwrap_or("Secret") == Kind::Secret.as_str();
        if !is_secret {
            return Ok(());
        }
        // The name becomes part of API paths.
        if let Err(why) = names::check_object(namespace, &reference.name) {
            return Err(format!(
                "no certificate is ordered for a Secret, because its {why}"
            ));
        }
        let other = reference.namespace.as_deref();
        if other.is_some_and(|other| other != namespace) {
            return Err(format!(
                "no certificate is ordered for Secret {:?}, because it is in another namespace; \
                 refer to a Secret in namespace {namespace:?}",
                reference.name
            ));
        }
        let existing = cx.world.secrets.get(&secret.namespace, &secret.name);
        if existing.is_some_and(|found| found.metadata.labels.get(ACME_KEY).is_none()) {
            return Ok(());
        }
        let hostname = listener
            .hostname
            .as_ref()
            .filter(|it| !it.as_str().is_empty());
        let Some(hostname) = hostname else {
            return Err(format!(
                "no certificate is ordered for Secret {secret}, because the listener has no valid \
                 hostname; set one"
            ));
        };
        let parents = self.parents(hostname, issuer, &secret, cx)?;
        let request = requests
            .entry(secret.clone())
            .or_insert_with(|| CertificateRequest {
                requesters: BTreeSet::new(),
                hostnames: BTreeSet::new(),
                parents: BTreeSet::new(),
                issuer: issuer.clone(),
                is_operators: self.is_operators(cx),
                exists: existing.is_some(),
            });
        if request.issuer != *issuer {
            return Err(format!(
                "Secret {secret} is already ordered for a Gateway with another spec.acme; refer to \
                 another Secret"
            ));
        }
        let hostnames = &mut request.hostnames;
        if hostnames.len() >= MAX_HOSTNAMES && !hostnames.contains(hostname.as_str()) {
            return Err(format!(
                "Secret {secret} already has {MAX_HOSTNAMES} hostnames, the maximum of a \
                 certificate; refer to another Secret"
            ));
        }
        request.is_operators &= self.is_operators(cx);
        request.requesters.insert(self.owner.key());
        hostnames.insert(hostname.as_str().to_owned());
        request.parents.extend(parents);
        Ok(())
    }

    /// Returns the HTTP listeners that can serve challenges for the hostname, preferably at port
    /// 80. A namespace cannot order for hostnames that it could not serve, because the listeners
    /// that receive the requests must permit its routes.
    fn parents(
        &self,
        hostname: &Hostname,
        issuer: &AcmeIssuer,
        secret: &NamespacedName,
        cx: &ResolveContext<'_, '_>,
    ) -> Result<Vec<ChallengeParent>, String> {
        if issuer.method == ChallengeMethod::Dns01 {
            return Ok(Vec::new());
        }
        if hostname.as_str().starts_with('*') {
            return Err(format!(
                "no certificate is ordered for Secret {secret}, because CAs validate the wildcard \
                 {:?} only with spec.acme.challenge DNS01",
                hostname.as_str()
            ));
        }
        let gateway = self.gateway;
        let receiving = self.http.receiving(hostname);
        let permitted = receiving.filter(|(_, found)| {
            let listener = found.listener;
            listener.accepted.good() && listener.allows(Kind::HttpRoute, &secret.namespace, cx)
        });
        let parents = permitted.map(|(port, found)| ChallengeParent {
            object: found.object.clone(),
            gateway: gateway.name(),
            listener: found.listener.spec.name.clone(),
            port,
            opened: gateway.settings.opened(port),
        });
        let mut parents: Vec<ChallengeParent> = parents.collect();
        if parents.iter().any(|parent| parent.port == HTTP) {
            parents.retain(|parent| parent.port == HTTP);
        }
        if parents.is_empty() {
            return Err(format!(
                "no certificate is ordered for Secret {secret}, because no HTTP listener for {:?} \
                 permits HTTPRoutes in namespace {:?}; add one with port {HTTP}, or permit them in \
                 the one with the most specific hostname",
                hostname.as_str(),
                secret.namespace
            ));
        }
        Ok(parents)
    }
}

/// Passthrough needs no certificate, and keys in host files replace the Secret. A listener without a
/// certificate is accepted, but a rejected listener needs none.
fn uses_secrets(listener: &CheckedListener<'_>) -> bool {
    let tls = listener.spec.tls.as_ref();
    let source = tls.map(CertificateSource::of_listener);
    listener.tls.is_some() && source == Some(CertificateSource::Secret) && listener.accepted.good()
}
