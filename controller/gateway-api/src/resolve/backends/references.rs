//! Backend references: the Service and port that each names, or the fault of the reference.

use super::tls_policies::ServiceName;
use super::traffic::Traffic;
use crate::api::{BackendRef, NamespacedName, Service, ServicePort, ServiceSpec};
use crate::resolve::backends::endpoints;
use crate::resolve::context::Context;
use crate::resolve::context::grants::{Referent, Referrer};
use crate::resolve::syntax::names;
use crate::status::Reason;

/// The fault of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefFault {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// Returns the Service that a reference names, if the reference is one to a Service and permitted.
pub(super) fn service_of<'w>(
    referrer: Referrer<'w>,
    reference: &'w BackendRef,
    cx: &Context<'w, '_>,
) -> Result<ServiceName<'w>, RefFault> {
    let BackendRef {
        group,
        kind,
        name,
        namespace,
        // The port is looked up in the Service.
        port: _,
        // Weights and filters are the caller's.
        weight: _,
        filters: _,
    } = reference;
    let fault = |reason, message| Err(RefFault { reason, message });
    let group = group.as_deref().unwrap_or_default();
    let kind = kind.as_deref().unwrap_or("Service");
    if !group.is_empty() || kind != "Service" {
        return fault(
            Reason::InvalidKind,
            format!(
                "{} {name:?} is not supported; expected a Service of the core group",
                names::group_kind(group, kind)
            ),
        );
    }
    let namespace = namespace.as_deref().unwrap_or(referrer.namespace);
    let target = Referent {
        group: "",
        kind: "Service",
        namespace,
        name,
    };
    if let Err(why) = cx.grants.check(referrer, target) {
        return fault(Reason::RefNotPermitted, why);
    }
    if let Err(why) = names::check_object(namespace, name) {
        return fault(Reason::BackendNotFound, why);
    }
    Ok((namespace, name))
}

/// Returns the port of a Service with this number.
pub(super) fn service_port<'w>(
    key: &NamespacedName,
    service: &'w Service,
    number: i32,
    traffic: Traffic,
) -> Result<&'w ServicePort, RefFault> {
    let fault = |reason, message| Err(RefFault { reason, message });
    let ServiceSpec {
        type_,
        external_name: _,
        ports,
    } = &service.spec;
    if type_ == "ExternalName" {
        return fault(
            Reason::UnsupportedValue,
            format!(
                "Service {key} has type ExternalName, which is not supported; use a Service with EndpointSlices"
            ),
        );
    }
    if !ports.iter().any(|port| port.port == number) || names::port(number).is_none() {
        let known: Vec<String> = ports.iter().map(|port| port.port.to_string()).collect();
        return fault(
            Reason::BackendNotFound,
            format!(
                "Service {key} has no port {number}; it has {}",
                known.join(", ")
            ),
        );
    }
    let transport = traffic.transport();
    endpoints::service_port(&service.spec, number, transport).ok_or_else(|| RefFault {
        reason: Reason::UnsupportedProtocol,
        message: format!("port {number} of Service {key} is not {transport}"),
    })
}
