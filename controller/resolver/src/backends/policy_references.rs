//! Resolves references from policies and configurations to Services.

use super::app_protocols::is_https;
use super::references::SERVICES;
use super::{Backends, ResolvedRef, Traffic};
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use sesame_kinds::api::{BackendObjectRef, Metadata, Service};
use sesame_kinds::status::{Grounds, Reason};

impl<'w> Backends<'w> {
    pub(crate) fn resolve_service(
        &mut self,
        referrer: Referrer<'_>,
        reference: &BackendObjectRef,
        traffic: Traffic,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<String, Grounds> {
        let metadata = &service(referrer, reference, cx)?.metadata;
        let service = (metadata.namespace.as_str(), metadata.name.as_str());
        let target = self.target(service, reference.port, traffic, cx)?;
        target.served()
    }

    /// The boolean is true if the port's protocol is HTTP rather than gRPC.
    pub(crate) fn collector(
        &mut self,
        referrer: Referrer<'_>,
        reference: &BackendObjectRef,
        cx: &ResolveContext<'w, '_>,
    ) -> (ResolvedRef<'w>, bool) {
        let service = match service(referrer, reference, cx) {
            Ok(service) => service,
            Err(fault) => {
                let (policed, target) = (Vec::new(), Err(fault));
                return (ResolvedRef { policed, target }, false);
            }
        };
        let ports = &service.spec.ports;
        let port = ports.iter().find(|port| Some(port.port) == reference.port);
        let app_protocol = port.and_then(|port| port.app_protocol.as_deref());
        let http =
            app_protocol.is_some_and(|name| name.eq_ignore_ascii_case("http") || is_https(name));
        let traffic = if http { Traffic::Http } else { Traffic::Grpc };
        let Metadata {
            namespace, name, ..
        } = &service.metadata;
        let service = (namespace.as_str(), name.as_str());
        let resolved = ResolvedRef {
            policed: self.policed(service, true),
            target: self.target(service, reference.port, traffic, cx),
        };
        (resolved, http)
    }
}

fn service<'w>(
    referrer: Referrer<'_>,
    reference: &BackendObjectRef,
    cx: &ResolveContext<'w, '_>,
) -> Result<&'w Service, Grounds> {
    let (namespace, name) = SERVICES.find(reference.into(), referrer, &cx.grants)?;
    let service = cx.world.services.get(namespace, name);
    service.map(AsRef::as_ref).ok_or_else(|| {
        let message = format!("Service {namespace}/{name} does not exist");
        (Reason::BackendNotFound, message)
    })
}
