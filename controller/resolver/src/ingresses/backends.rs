//! Resolves the backends of an Ingress, which are Services in its namespace.

use sesame_proto::refusal;
use sesame_proto::schema::{Forward, WeightedBackend};

use super::rules::{IngressFaults, IngressHostRules};
use crate::backends::{Connection, ResolvedRef};
use crate::routes::rules::{Action, RuleContext};
use crate::syntax::names;
use sesame_kinds::api::{IngressBackend, IngressResource, IngressService, IngressServicePort};
use sesame_kinds::status::{Grounds, Reason, unsupported};

/// Returns an error response for an invalid backend. `at` is the backend's field path.
pub(super) fn action<'w>(
    at: &str,
    index: usize,
    (backend, connection): (&'w IngressBackend, &Connection),
    cx: &mut RuleContext<'_, 'w, '_>,
    (rules, faults): (&mut IngressHostRules<'w>, &mut IngressFaults),
) -> Action {
    let IngressBackend { service, resource } = backend;
    let (status, (reason, why)) = match (service, resource) {
        (Some(service), None) => match forward(index, (service, connection), cx, rules) {
            Ok(forward) => return Action::Forward(forward),
            Err(fault) => (refusal::UNAVAILABLE, fault),
        },
        (_, Some(resource)) => {
            let IngressResource {
                api_group,
                kind,
                name,
            } = resource;
            let kind = names::group_kind(api_group.as_deref().unwrap_or_default(), kind);
            let message = format!("resource {kind} {name:?} is not supported; use a Service");
            (refusal::HTTP, (Reason::InvalidKind, message))
        }
        (None, None) => (refusal::HTTP, unsupported("service is missing")),
    };
    let message = format!("{at}: {why}; its requests get {status}");
    faults.references.refuse(reason, message);
    Action::respond(status)
}

fn forward<'w>(
    index: usize,
    (service, connection): (&'w IngressService, &Connection),
    cx: &mut RuleContext<'_, 'w, '_>,
    rules: &mut IngressHostRules<'w>,
) -> Result<Forward, Grounds> {
    let namespace = cx.referrer.namespace;
    let port = port(service, cx)?;
    let name = (namespace, service.name.as_str());
    let connection = connection.clone();
    let ResolvedRef { policed, target } = cx
        .backends
        .of_service(name, port, cx.traffic, connection, cx.cx);
    rules.policed.extend(policed);
    let mut backends = vec![WeightedBackend {
        backend: target?.served()?,
        weight: 1,
        ..WeightedBackend::default()
    }];
    let mut unkept = Vec::new();
    let session = cx.backend_session(index, &mut backends, &mut unkept);
    if !unkept.is_empty() {
        return Err(unsupported(unkept.join("; ")));
    }
    Ok(Forward {
        backends,
        session: session.map(Box::new),
        ..Forward::default()
    })
}

fn port(service: &IngressService, cx: &RuleContext<'_, '_, '_>) -> Result<i32, Grounds> {
    let IngressService {
        name: of,
        port: IngressServicePort { name, number },
    } = service;
    let namespace = cx.referrer.namespace;
    match (name.as_str(), *number) {
        ("", 0) => Err(unsupported("service.port has neither a name nor a number")),
        ("", number) if names::port(number).is_none() => Err(unsupported(format!(
            "service.port.number {number} is out of range; expected 1 to 65535"
        ))),
        ("", number) => Ok(number),
        (name, 0) => {
            let Some(found) = cx.cx.world.services.get(namespace, of) else {
                let message = format!("Service {namespace}/{of} does not exist");
                return Err((Reason::BackendNotFound, message));
            };
            let port = found.spec.ports.iter().find(|port| *port.name == *name);
            port.map(|port| port.port).ok_or_else(|| {
                let message = format!("Service {namespace}/{of} has no port named {name:?}");
                (Reason::BackendNotFound, message)
            })
        }
        (name, number) => Err(unsupported(format!(
            "service.port has both a name ({name:?}) and a number ({number}); set one of them"
        ))),
    }
}
