//! Resolves a listener's TLS termination.

use std::collections::BTreeSet;

use sesame_proto::schema;

use super::implicit::HostClients;
use super::listener::{CheckedListener, ListenerOwner};
use super::tls_options::{self, TICKET_KEYS, TlsOptions};
use super::uncovered::UncoveredHostname;
use crate::context::ResolveContext;
use crate::syntax::limits;
use crate::tls::ca_bundles::CaBundles;
use crate::tls::certificate_source::CertificateSource;
use crate::tls::certificates::{Certificates, Usable};
use crate::tls::client_validation::FrontendValidation;
use crate::tls::key_pairs::Certificate;
use crate::tls::ticket_keys::NamedTicketKeys;
use sesame_kinds::api::{ListenerTls, ObjectRef, Protocol, TlsMode};
use sesame_kinds::status::{Grounds, Reason};

/// Returns violations of the API schema, and invalid Sesame options.
pub(super) fn faults(protocol: &Protocol, tls: Option<&ListenerTls>) -> Vec<String> {
    let option_faults = tls.map(|tls| TlsOptions::read(protocol, tls).1);
    let schema_fault = check(protocol, tls).err();
    schema_fault
        .into_iter()
        .chain(option_faults.into_iter().flatten())
        .collect()
}

fn check(protocol: &Protocol, tls: Option<&ListenerTls>) -> Result<(), String> {
    match (protocol, tls) {
        (Protocol::Http | Protocol::Tcp | Protocol::Udp, Some(_)) => Err(format!(
            "tls must not be set with protocol {protocol}; use HTTPS or TLS"
        )),
        (Protocol::Https, None) => {
            Err("tls is required with protocol HTTPS; set tls.certificateRefs".to_owned())
        }
        (Protocol::Tls, None) => Err("tls is required with protocol TLS; set tls.mode".to_owned()),
        (Protocol::Https | Protocol::Tls, Some(tls)) => {
            let ListenerTls {
                mode,
                certificate_refs,
                options: _,
            } = tls;
            let terminate = match mode {
                Some(TlsMode::Terminate) => true,
                None if *protocol == Protocol::Https => true,
                Some(TlsMode::Passthrough) if *protocol == Protocol::Tls => false,
                None => return Err("tls.mode is required with protocol TLS".to_owned()),
                Some(other) => {
                    return Err(format!(
                        "tls.mode {:?} is not supported with protocol {protocol}",
                        other.as_str()
                    ));
                }
            };
            if terminate && certificate_refs.is_empty() {
                return Err("tls.certificateRefs is empty; name at least one Secret".to_owned());
            }
            let count = certificate_refs.len();
            limits::entries(
                "tls.certificateRefs",
                count,
                0..=limits::MAX_CERTIFICATE_REFS,
            )
        }
        _ => Ok(()),
    }
}

fn terminates(protocol: &Protocol, mode: Option<&TlsMode>) -> bool {
    match protocol {
        Protocol::Https => true,
        Protocol::Tls => mode == Some(&TlsMode::Terminate),
        _ => false,
    }
}

pub(crate) fn resolve<'w>(
    owner: &ListenerOwner<'w>,
    listener: &mut CheckedListener<'w>,
    frontend: &FrontendValidation,
    cx: &mut ResolveContext<'w, '_>,
    (certificates, bundles): (&mut Certificates<'w, '_>, &mut CaBundles<'w>),
) {
    let Some(tls) = &listener.spec.tls else {
        return;
    };
    if !terminates(&listener.spec.protocol, tls.mode.as_ref()) {
        return;
    }
    for (name, value) in tls_options::of_others(&tls.options) {
        let message = format!("tls.options {name:?}: {value:?} is not supported and has no effect");
        report(owner, listener, &message, cx);
    }
    // Invalid options are already reported in `accepted`.
    let (options, _) = TlsOptions::read(&listener.spec.protocol, tls);
    let mut termination = schema::TlsTermination {
        keys: match options.source() {
            CertificateSource::Secret => {
                keys(owner, listener, &tls.certificate_refs, cx, certificates)
            }
            CertificateSource::Host => {
                keys_on_hosts(owner, listener, &tls.certificate_refs, cx, certificates)
            }
        },
        ..Default::default()
    };
    let named = |name: &String| Some(certificates.named(name)?.kind);
    if let Some(message) = options.advice(&termination.keys.iter().filter_map(named).collect()) {
        advise(owner, listener, message, cx);
    }
    listener.lacks_certificate = termination.keys.is_empty();
    listener.certificate_names = dns_names(&termination.keys, certificates);
    if listener.spec.protocol == Protocol::Https
        && let Some(port) = listener.port
    {
        let verdicts = (&mut listener.accepted, &mut listener.resolved);
        let advice = frontend.apply(port, verdicts, &mut termination);
        if let Some(message) = advice {
            advise(owner, listener, message.to_owned(), cx);
        }
    }
    if let Err((reason, why)) = host_clients(owner, listener, &mut termination, cx, bundles) {
        listener.accepted.refuse(reason, why);
    }
    if let Some(name) = &options.session_ticket_keys {
        if termination.client_trust_bundle.is_empty() {
            termination.session_ticket_keys = ticket_keys(owner, listener, name, cx, certificates);
        } else {
            let message = format!(
                "tls.options {TICKET_KEYS:?} has no effect, because clients that present a certificate do not resume \
                 sessions"
            );
            advise(owner, listener, message, cx);
        }
    }
    let unverified = options.unverified_names(&termination);
    listener
        .accepted
        .refuse_if(Reason::UnsupportedValue, unverified);
    options.apply(&mut termination);
    listener.tls = Some(termination);
}

/// Applies client validation from an HTTPProxy. After an error, the caller must not serve the host.
fn host_clients<'w>(
    owner: &ListenerOwner<'w>,
    listener: &mut CheckedListener<'w>,
    termination: &mut schema::TlsTermination,
    cx: &ResolveContext<'w, '_>,
    bundles: &mut CaBundles<'w>,
) -> Result<(), Grounds> {
    let Some(HostClients {
        mode,
        authorities,
        revoked,
        leaf_only,
        forward,
    }) = listener.clients
    else {
        return Ok(());
    };
    if !termination.client_trust_bundle.is_empty() {
        let why = "clientValidation: spec.tls.frontend of the Gateway validates the clients of \
                   this port, and a host has one validation; remove one of the two";
        return Err((Reason::NoValidCaCertificate, why.to_owned()));
    }
    if let Some(authorities) = authorities {
        let revoked = revoked.as_ref().map(|lists| (lists.into(), *leaf_only));
        let bundle = bundles.of_secrets(owner.referrer(), authorities.into(), revoked, cx)?;
        termination.client_trust_bundle.clone_from(&bundle.name);
        listener.client_bundle = Some(bundle);
    }
    termination.client_mode = (*mode).into();
    termination.forward_client_certificate = *forward;
    Ok(())
}

/// Returns the names sorted, without duplicates.
fn dns_names(keys: &[String], certificates: &Certificates<'_, '_>) -> Vec<String> {
    let shown = keys.iter().filter_map(|name| certificates.named(name));
    let names: BTreeSet<&str> = shown.flat_map(Certificate::dns_names).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Reports errors in `listener.resolved`.
fn ticket_keys<'w>(
    owner: &ListenerOwner<'w>,
    listener: &mut CheckedListener<'w>,
    name: &str,
    cx: &ResolveContext<'w, '_>,
    certificates: &mut Certificates<'w, '_>,
) -> String {
    let NamedTicketKeys { name, fault } =
        certificates.session_ticket_keys(owner.namespace, name, cx);
    if let Some((reason, why)) = fault {
        let message = format!("tls.options {TICKET_KEYS:?}: {why}");
        listener.resolved.refuse(reason, message);
    }
    name
}

/// Reports errors in `listener.resolved`, and warnings in `listener.advice`.
fn keys<'w>(
    owner: &ListenerOwner<'w>,
    listener: &mut CheckedListener<'w>,
    references: &'w [ObjectRef],
    cx: &mut ResolveContext<'w, '_>,
    certificates: &mut Certificates<'w, '_>,
) -> Vec<String> {
    let mut keys = Vec::new();
    let mut covered = false;
    for (i, reference) in references
        .iter()
        .take(limits::MAX_CERTIFICATE_REFS)
        .enumerate()
    {
        let at = owner.certificate_field(i, reference);
        let (usable, fault) = match certificates.get(owner.referrer(), reference, cx) {
            Ok(Usable { certificate, fault }) => (Some(certificate), fault),
            Err(fault) => (None, Some(fault)),
        };
        if let Some((reason, why)) = fault {
            listener.resolved.refuse(reason, format!("{at}: {why}"));
        }
        let Some(certificate) = usable else { continue };
        let hostname = listener.hostname.as_ref();
        covered |= hostname.is_none_or(|hostname| certificate.covers(hostname));
        for message in certificate.advice.iter().chain(&certificate.server_advice) {
            advise(owner, listener, format!("{at}: {message}"), cx);
        }
        let name = &certificate.key.name;
        if keys.contains(name) {
            continue;
        }
        let mut before = keys.iter().filter_map(|name| certificates.named(name));
        if let Some(first) = before.find(|first| first.stands_for(&certificate)) {
            let message = format!(
                "{at}: {name} is never presented to clients, because {} has the same key type and \
                 covers all its names",
                first.key.name
            );
            advise(owner, listener, message, cx);
        }
        keys.push(name.clone());
    }
    if !covered && !keys.is_empty() {
        let uncovered = UncoveredHostname {
            listener: listener.spec.name.clone(),
            hostname: listener.spec.hostname.clone().unwrap_or_default(),
        };
        advise(owner, listener, uncovered.to_string(), cx);
        listener.uncovered = Some(uncovered);
    }
    keys
}

/// These certificates exist only on the hosts, so they cannot be read here.
fn keys_on_hosts<'w>(
    owner: &ListenerOwner<'w>,
    listener: &mut CheckedListener<'w>,
    references: &'w [ObjectRef],
    cx: &ResolveContext<'w, '_>,
    certificates: &mut Certificates<'w, '_>,
) -> Vec<String> {
    let mut keys = Vec::new();
    let looked_at = references.iter().take(limits::MAX_CERTIFICATE_REFS);
    for (i, reference) in looked_at.enumerate() {
        match certificates.on_hosts(owner.referrer(), reference, cx) {
            Ok(name) if keys.contains(&name) => {}
            Ok(name) => keys.push(name),
            Err((reason, why)) => {
                let message = format!("tls.certificateRefs[{i}]: {why}");
                listener.resolved.refuse(reason, message);
            }
        }
    }
    keys
}

/// The certificate is served despite its flaw.
fn advise<'w>(
    owner: &ListenerOwner<'w>,
    listener: &mut CheckedListener<'w>,
    message: String,
    cx: &mut ResolveContext<'w, '_>,
) {
    report(owner, listener, &message, cx);
    if !listener.advice.contains(&message) {
        listener.advice.push(message);
    }
}

fn report(
    owner: &ListenerOwner<'_>,
    listener: &CheckedListener<'_>,
    message: &str,
    cx: &mut ResolveContext<'_, '_>,
) {
    let message = format!("listener {:?}: {message}", listener.spec.name);
    cx.problems.add(owner.key(), message);
}
