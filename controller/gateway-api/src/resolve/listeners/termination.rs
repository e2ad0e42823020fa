//! TLS of a listener: the fields that may be set, its certificates, and the validation of its clients.

use sesame_proto::schema;

use super::listener::{CheckedListener, ListenerOwner};
use crate::api::{ListenerTls, ObjectRef, Protocol, TlsMode};
use crate::resolve::context::ResolveContext;
use crate::resolve::syntax::limits;
use crate::resolve::tls::certificates::{Certificates, Usable};
use crate::resolve::tls::client_validation::FrontendValidation;

/// Checks `tls` of a listener as the API's schema does.
pub(crate) fn check(protocol: &Protocol, tls: Option<&ListenerTls>) -> Result<(), String> {
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

/// Sets the TLS termination of a listener: its certificates, and the validation of its clients.
pub(crate) fn resolve<'w>(
    owner: &ListenerOwner<'w>,
    listener: &mut CheckedListener<'w>,
    frontend: &FrontendValidation,
    cx: &mut ResolveContext<'w, '_>,
    certificates: &mut Certificates<'w, '_>,
) {
    let Some(tls) = &listener.spec.tls else {
        return;
    };
    let terminates = match listener.spec.protocol {
        Protocol::Https => true,
        Protocol::Tls => tls.mode == Some(TlsMode::Terminate),
        _ => false,
    };
    if !terminates {
        return;
    }
    for (name, value) in &tls.options {
        let message = format!("tls.options {name:?}: {value:?} is not supported and has no effect");
        tell(owner, listener, &message, cx);
    }
    let mut termination = schema::TlsTermination {
        keys: keys(owner, listener, &tls.certificate_refs, cx, certificates),
        ..Default::default()
    };
    listener.lacks_certificate = termination.keys.is_empty();
    if listener.spec.protocol == Protocol::Https
        && let Some(port) = listener.port
    {
        frontend.apply(
            port,
            &mut listener.accepted,
            &mut listener.resolved,
            &mut termination,
        );
    }
    listener.tls = Some(termination);
}

/// Returns the names of the usable keys of a listener. A reference that is wrong is told in its `resolved`, the rest as problems.
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
        let at = format!("tls.certificateRefs[{i}]");
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
        let name = &certificate.key.name;
        if let Some(kind) = &certificate.refused_kind {
            let message = format!(
                "{at}: the key of {name} is {kind}, which Envoy is known to refuse; it takes RSA of at least 2048 bits, \
                 ECDSA on P-256, P-384 or P-521, and Ed25519"
            );
            tell(owner, listener, &message, cx);
        }
        if !keys.contains(name) {
            keys.push(name.clone());
        }
    }
    if !covered && !keys.is_empty() {
        let message = format!(
            "no certificate of tls.certificateRefs is for hostname {:?}; clients will refuse it",
            listener.spec.hostname.as_deref().unwrap_or_default()
        );
        tell(owner, listener, &message, cx);
    }
    keys
}

/// Tells the owner of a listener something for which there is no condition.
fn tell(
    owner: &ListenerOwner<'_>,
    listener: &CheckedListener<'_>,
    message: &str,
    cx: &mut ResolveContext<'_, '_>,
) {
    let message = format!("listener {:?}: {message}", listener.spec.name);
    cx.problems.add(owner.key(), message);
}
