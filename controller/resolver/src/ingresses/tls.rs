//! Reads `spec.tls` in Ingresses. Each host that has a Secret becomes an HTTPS listener of the
//! Gateway.
//!
//! These listeners count towards their namespace's share. Listeners of the Gateway, of
//! ListenerSets, and of older Ingresses take precedence. If another listener serves a host, the
//! Ingress's rules attach to that listener, and clients get its certificate.

use std::collections::BTreeMap;

use super::classes::IngressClasses;
use super::listeners::{ListenersOfGateway, OwnerName};
use super::rules::IngressFaults;
use super::{contour, nginx};
use crate::context::ResolveContext;
use crate::listeners::CheckedListener;
use crate::listeners::implicit::{self, ImplicitListeners};
use crate::syntax::hostnames::Hostname;
use crate::syntax::limits::{self, MAX_INGRESS_TLS_HOSTS};
use sesame_kinds::api::{Ingress, IngressSpec, IngressTls, Listener, Metadata, ObjectRef};
use sesame_kinds::status::Reason;
use sesame_kinds::world::{Kind, ObjectKey, World};

pub(crate) fn listeners_of_all<'w>(
    world: &'w World,
    classes: &IngressClasses<'w>,
) -> Vec<ImplicitListeners<'w>> {
    let port = classes.ports().of_tls_hosts();
    let with_tls = |ingress: &&Ingress| !ingress.spec.tls.is_empty();
    let ingresses = world.ingresses.iter().map(AsRef::as_ref).filter(with_tls);
    ingresses
        .filter_map(|ingress| {
            let (class, gateway) = classes.find(ingress)?;
            let gateway = *gateway.as_ref().ok()?;
            check_limits(&ingress.spec).ok()?;
            let hosts = hosts_with_secrets(&ingress.spec).into_iter();
            let listeners: Vec<Listener> = hosts
                .map(|(host, secrets)| listener((&host, port), secrets, &ingress.metadata))
                .collect();
            (!listeners.is_empty()).then_some(ImplicitListeners {
                kind: Kind::Ingress,
                gateway,
                metadata: &ingress.metadata,
                listeners,
                clients: (classes.reads_nginx(class))
                    .then(|| nginx::host_clients(&ingress.metadata))
                    .flatten(),
                fallback: None,
            })
        })
        .collect()
}

pub(super) fn check_limits(spec: &IngressSpec) -> Result<(), String> {
    let hosts = spec.tls.iter().map(|entry| match entry.hosts.len() {
        0 => spec.rules.len().max(1),
        hosts => hosts,
    });
    limits::entries(
        "hosts of all spec.tls",
        hosts.sum(),
        0..=MAX_INGRESS_TLS_HOSTS,
    )
}

/// An entry without hosts covers the hosts of all rules, or every host if the Ingress has no rules.
pub(super) fn hosts_of<'s>(entry: &'s IngressTls, spec: &'s IngressSpec) -> Vec<&'s str> {
    if !entry.hosts.is_empty() {
        return entry.hosts.iter().map(String::as_str).collect();
    }
    if spec.rules.is_empty() {
        return vec![""];
    }
    spec.rules.iter().map(|rule| rule.host.as_str()).collect()
}

pub(crate) fn explicit_hosts(spec: &IngressSpec) -> Vec<IngressTls> {
    let explicit = |entry: &IngressTls| IngressTls {
        hosts: hosts_of(entry, spec)
            .into_iter()
            .map(str::to_owned)
            .collect(),
        secret_name: entry.secret_name.clone(),
    };
    spec.tls.iter().map(explicit).collect()
}

fn hosts_with_secrets(spec: &IngressSpec) -> BTreeMap<Hostname, Vec<&str>> {
    let mut found: BTreeMap<Hostname, Vec<&str>> = BTreeMap::new();
    for entry in spec.tls.iter().filter(|it| !it.secret_name.is_empty()) {
        let hosts = hosts_of(entry, spec).into_iter();
        for host in hosts.filter_map(|host| Hostname::parse(host).ok()) {
            let secrets = found.entry(host).or_default();
            if !secrets.contains(&entry.secret_name.as_str()) {
                secrets.push(&entry.secret_name);
            }
        }
    }
    found
}

fn listener(at: (&Hostname, u16), secrets: Vec<&str>, ingress: &Metadata) -> Listener {
    let certificate = |name: &str| ObjectRef {
        name: name.to_owned(),
        namespace: contour::certificate_namespace(ingress).map(str::to_owned),
        ..ObjectRef::default()
    };
    let certificates = secrets.into_iter().map(certificate).collect();
    implicit::listener(at, certificates, contour::tls_options(ingress))
}

pub(super) fn report(
    ingress: &Ingress,
    object: &ObjectKey,
    listeners: &ListenersOfGateway<'_, '_>,
    cx: &mut ResolveContext<'_, '_>,
    faults: &mut IngressFaults,
) {
    let Ingress { metadata, spec } = ingress;
    let owner = OwnerName::of(Kind::Ingress, metadata);
    for (index, entry) in spec.tls.iter().enumerate() {
        for host in hosts_of(entry, spec) {
            let at = format!("tls[{index}]: host {host:?}");
            let mut not_served = |reason: Reason, why: &str| {
                let message = format!("{at} is not served over HTTPS: {why}");
                faults.rules.refuse(reason, message);
            };
            let hostname = match Hostname::parse(host) {
                Ok(hostname) => hostname,
                Err(why) => {
                    not_served(Reason::UnsupportedValue, &why);
                    continue;
                }
            };
            let has_https = listeners.has_https(&hostname, owner, cx);
            match listeners.added(&hostname, owner) {
                None if has_https => {}
                None => {
                    let gateway = listeners.gateway().owner.display();
                    let why = format!(
                        "secretName is missing, and {gateway} has no HTTPS listener for this \
                         host{}",
                        listeners.ports.described()
                    );
                    not_served(Reason::UnsupportedValue, &why);
                }
                Some(added) if has_https => {
                    if let Some(why) = another_certificate(added) {
                        let message = format!("{at}: {why}");
                        cx.problems.add(object.clone(), message.clone());
                        faults.overridden.get_or_insert(message);
                    }
                    faults.references.add(&added.resolved);
                }
                Some(CheckedListener {
                    accepted, resolved, ..
                }) => {
                    faults.references.add(resolved);
                    let fault = accepted.fault().or_else(|| resolved.fault());
                    let (reason, why) = fault.unwrap_or((Reason::Invalid, "it has no listener"));
                    not_served(reason, why);
                }
            }
        }
    }
}

fn another_certificate(listener: &CheckedListener<'_>) -> Option<&'static str> {
    listener.conflict.as_ref()?;
    Some(
        "its Secret is not used, because the Gateway, a ListenerSet, an HTTPProxy or an older \
         Ingress has an HTTPS listener for the same host; clients get the certificate of that listener",
    )
}
