//! Finds the certificates to order by ACME: Secrets of annotated Gateways' HTTPS listeners.
//!
//! A Secret that lacks the label of issued Secrets belongs to another program, and is not requested.
//! Each obstacle becomes part of the message of the Gateway's `Accepted` condition.

use std::collections::BTreeSet;

use sesame_acme::{
    ACME_KEY, AcmeIssuer, CertificateRequest, CertificateRequests, ChallengeMethod, ChallengeParent,
};
use sesame_proto::schema;

use crate::context::{ResolveContext, ResolvedFor};
use crate::gateways::CheckedGateway;
use crate::listeners::CheckedListener;
use crate::settings::acme::issuer;
use crate::syntax::hostnames::Hostname;
use crate::tls::certificate_source::CertificateSource;
use sesame_kinds::api::{NamespacedName, ObjectRef};
use sesame_kinds::world::{Kind, World};

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
        let found = match gateway.metadata.annotations.get(ACME_KEY) {
            None | Some("false") => continue,
            Some("true") => of_gateway(gateway, cx, &mut requests),
            Some(other) => {
                let other: String = other.chars().take(40).collect();
                vec![format!("{other:?}: expected \"true\" or \"false\"")]
            }
        };
        let prefix = format!("metadata.annotations[{ACME_KEY}]");
        let found = found.into_iter().map(|why| format!("{prefix}: {why}"));
        gateway.not_understood.extend(found);
    }
    requests
}

/// Returns obstacles, each with its remedy.
fn of_gateway(
    gateway: &CheckedGateway<'_>,
    cx: &ResolveContext<'_, '_>,
    requests: &mut CertificateRequests,
) -> Vec<String> {
    if gateway.parameters_refused || !gateway.accepted.good() {
        return Vec::new();
    }
    let Some(issuer) = issuer(&gateway.settings.acme) else {
        let why = "no certificates are ordered, because spec.acme.termsAgreed is not true in the \
            SesameConfiguration of the controller or the GatewayClass; set it to true";
        return vec![why.to_owned()];
    };
    if issuer.method == ChallengeMethod::Dns01 && cx.options.resolved_for == ResolvedFor::Cluster {
        let why = "no certificates are ordered, because spec.acme.challenge is DNS01, which works \
            only on hosts with manifests; choose HTTP01";
        return vec![why.to_owned()];
    }
    let rollout = gateway.settings.rollout.as_ref();
    if cx.options.resolved_for == ResolvedFor::Cluster
        && rollout.is_some_and(|it| !it.stages.is_empty())
    {
        let why = "no certificates are ordered, because spec.rollout.stages keeps challenges from \
            most hosts; remove the stages, or use another client with DNS-01";
        return vec![why.to_owned()];
    }
    let mut obstacles = Vec::new();
    for listener in gateway.own_listeners() {
        if !uses_secrets(listener) {
            continue;
        }
        let tls = listener.spec.tls.iter();
        for reference in tls.flat_map(|tls| &tls.certificate_refs) {
            let added = add(gateway, listener, reference, &issuer, cx.world, requests);
            let name = &listener.spec.name;
            obstacles.extend(added.err().map(|why| format!("listener {name:?}: {why}")));
        }
    }
    obstacles
}

/// Passthrough needs no certificate, and keys in host files replace the Secret. A listener without a
/// certificate is accepted, but a rejected listener needs none.
fn uses_secrets(listener: &CheckedListener<'_>) -> bool {
    let tls = listener.spec.tls.as_ref();
    let source = tls.map(CertificateSource::of_listener);
    listener.tls.is_some()
        && source == Some(CertificateSource::Secret)
        && listener.accepted.good()
}

fn add(
    gateway: &CheckedGateway<'_>,
    listener: &CheckedListener<'_>,
    reference: &ObjectRef,
    issuer: &AcmeIssuer,
    world: &World,
    requests: &mut CertificateRequests,
) -> Result<(), String> {
    let namespace = gateway.owner.namespace;
    let secret = NamespacedName::new(namespace, &reference.name);
    let is_secret = reference.group.as_deref().unwrap_or_default().is_empty()
        && reference.kind.as_deref().unwrap_or("Secret") == Kind::Secret.as_str();
    if !is_secret {
        return Ok(());
    }
    if reference
        .namespace
        .as_deref()
        .is_some_and(|other| other != namespace)
    {
        return Err(format!(
            "no certificate is ordered for Secret {:?}, because it is in another namespace; refer \
             to a Secret in namespace {namespace:?}",
            reference.name
        ));
    }
    let existing = world.secrets.get(&secret.namespace, &secret.name);
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
    let parents = parents(gateway, hostname, issuer, &secret)?;
    let request = requests
        .entry(secret.clone())
        .or_insert_with(|| CertificateRequest {
            gateways: BTreeSet::new(),
            hostnames: BTreeSet::new(),
            parents: BTreeSet::new(),
            issuer: issuer.clone(),
            exists: existing.is_some(),
        });
    if request.issuer != *issuer {
        return Err(format!(
            "Secret {secret} is already ordered for a Gateway with another spec.acme; refer to \
             another Secret"
        ));
    }
    if request.hostnames.len() >= MAX_HOSTNAMES && !request.hostnames.contains(hostname.as_str()) {
        return Err(format!(
            "Secret {secret} already has {MAX_HOSTNAMES} hostnames, the maximum of a certificate; \
             refer to another Secret"
        ));
    }
    request.gateways.insert(gateway.owner.name.to_owned());
    request.hostnames.insert(hostname.as_str().to_owned());
    request.parents.extend(parents);
    Ok(())
}

/// Returns the HTTP listeners that can serve challenges for the hostname, preferably at port 80.
fn parents(
    gateway: &CheckedGateway<'_>,
    hostname: &Hostname,
    issuer: &AcmeIssuer,
    secret: &NamespacedName,
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
    let can_serve = |listener: &&CheckedListener<'_>| {
        listener.protocol == Some(schema::Protocol::Http)
            && listener.accepted.good()
            && listener
                .hostname
                .as_ref()
                .is_some_and(|own| own.covers(hostname))
    };
    let parents = gateway.own_listeners().iter().filter(can_serve);
    let parents = parents.filter_map(|listener| {
        let port = listener.port?;
        Some(ChallengeParent {
            gateway: gateway.owner.name.to_owned(),
            listener: listener.spec.name.clone(),
            port,
            opened: gateway.settings.opened(port),
        })
    });
    let mut parents: Vec<ChallengeParent> = parents.collect();
    if parents.iter().any(|parent| parent.port == HTTP) {
        parents.retain(|parent| parent.port == HTTP);
    }
    if parents.is_empty() {
        return Err(format!(
            "no certificate is ordered for Secret {secret}, because the Gateway has no HTTP \
             listener for {:?}; add one with port {HTTP}",
            hostname.as_str()
        ));
    }
    Ok(parents)
}
