//! Finds the client key that a Gateway presents to backends, either in a Secret or in files on the
//! hosts.

use super::ReferencedObjects;
use crate::context::ResolveContext;
use crate::listeners::ListenerOwner;
use crate::tls::certificate_source::CertificateSource;
use sesame_kinds::api::{Gateway, GatewayBackendTls};
use sesame_kinds::status::{Reason, Verdict};

pub(super) fn find<'w>(
    gateway: &'w Gateway,
    owner: &ListenerOwner<'w>,
    resolved: &mut Verdict,
    cx: &ResolveContext<'w, '_>,
    references: &mut ReferencedObjects<'_, 'w, '_>,
) -> Option<String> {
    let GatewayBackendTls {
        client_certificate_ref,
    } = gateway.spec.tls.as_ref()?.backend.as_ref()?;
    let reference = client_certificate_ref.as_ref()?;
    let certificates = &mut *references.certificates;
    let found = match CertificateSource::of_gateway(&gateway.metadata) {
        CertificateSource::Secret => certificates
            .get(owner.referrer(), reference, cx)
            .map(|usable| (usable.certificate.key.name.clone(), usable.fault)),
        CertificateSource::Host => certificates
            .on_hosts(owner.referrer(), reference, cx)
            .map(|name| (name, None)),
    };
    let (key, fault) = match found {
        Ok((name, fault)) => (Some(name), fault),
        Err(fault) => (None, Some(fault)),
    };
    if let Some((reason, why)) = fault {
        let reason = match reason {
            Reason::RefNotPermitted => reason,
            _ => Reason::InvalidClientCertificateRef,
        };
        resolved.refuse(
            reason,
            format!("spec.tls.backend.clientCertificateRef: {why}"),
        );
    }
    key
}
