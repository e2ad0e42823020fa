//! Validates backend references and looks up Service ports.

use super::traffic::Traffic;
use crate::backends::endpoints;
use crate::context::references::Expected;
use crate::syntax::names;
use sesame_kinds::api::{
    EXPERIMENTAL_GATEWAY_GROUP, NamespacedName, Service, ServicePort, ServiceSpec,
};
use sesame_kinds::status::{Grounds, Reason, unsupported};

pub(super) const SERVICES: Expected = Expected {
    group: "",
    kind: "Service",
    default: "Service",
    wrong_kind: Reason::InvalidKind,
    wrong_name: Reason::BackendNotFound,
};

/// References to XBackends must specify the kind.
pub(super) const X_BACKENDS: Expected = Expected {
    group: EXPERIMENTAL_GATEWAY_GROUP,
    kind: "XBackend",
    default: "Service",
    wrong_kind: Reason::InvalidKind,
    wrong_name: Reason::BackendNotFound,
};

/// Namespace and name.
pub(crate) type BackendName<'w> = (&'w str, &'w str);

/// A backend whose status, or whose policies' status, lists the Gateways that send traffic to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicedBackend<'w> {
    /// Service with BackendTLSPolicies.
    WithTls(BackendName<'w>),
    /// Service with XBackendTrafficPolicies.
    WithTraffic(BackendName<'w>),
    /// Service with BackendPolicies.
    WithSettings(BackendName<'w>),
    /// XBackend, with or without policies.
    XBackend(BackendName<'w>),
}

/// Fails if the port cannot receive this kind of traffic.
pub(super) fn service_port<'w>(
    key: &NamespacedName,
    service: &'w Service,
    number: i32,
    traffic: Traffic,
) -> Result<&'w ServicePort, Grounds> {
    let ServiceSpec {
        type_,
        external_name: _,
        ports,
        traffic_distribution: _,
    } = &service.spec;
    if **type_ == *"ExternalName" {
        return Err(unsupported(format!(
            "Service {key} has type ExternalName, which is not supported; use a Service with EndpointSlices"
        )));
    }
    if !ports.iter().any(|port| port.port == number) || names::port(number).is_none() {
        let known: Vec<String> = ports.iter().map(|port| port.port.to_string()).collect();
        let known = known.join(", ");
        let message = format!("Service {key} has no port {number}; it has {known}");
        return Err((Reason::BackendNotFound, message));
    }
    let transport = traffic.transport();
    endpoints::service_port(&service.spec, number, transport).ok_or_else(|| {
        let message = format!("port {number} of Service {key} is not {transport}");
        (Reason::UnsupportedProtocol, message)
    })
}
