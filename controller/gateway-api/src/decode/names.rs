//! Names as an API server would accept them: they become parts of resource names, paths and metrics.

use sesame_proto::dns_name::{is_dns_label, is_dns_subdomain};

use super::Reason;
use crate::api::{Listener, RouteSpec};
use crate::world::{AnyObject, Kind};

const SUBDOMAIN: &str = "expected at most 253 lower case letters, digits, `-` and `.`, \
                         each part starting and ending with a letter or digit";
const LABEL: &str = "expected at most 63 lower case letters, digits and `-`, \
                     starting and ending with a letter or digit";

/// Checks the names in an object: its own, its namespace, and those of its listeners and rules.
pub(super) fn check(object: &AnyObject) -> Result<(), Reason> {
    let metadata = object.metadata();
    let name = metadata.name.as_str();
    if object.kind() == Kind::Namespace {
        expect(
            is_dns_label(name),
            || "metadata.name".to_owned(),
            name,
            LABEL,
        )?;
    } else {
        expect(
            is_dns_subdomain(name),
            || "metadata.name".to_owned(),
            name,
            SUBDOMAIN,
        )?;
    }
    if !metadata.namespace.is_empty() {
        let namespace = metadata.namespace.as_str();
        expect(
            is_dns_label(namespace),
            || "metadata.namespace".to_owned(),
            namespace,
            LABEL,
        )?;
    }
    match object {
        AnyObject::Gateway(gateway) => listeners(&gateway.spec.listeners),
        AnyObject::ListenerSet(set) => listeners(&set.spec.listeners),
        AnyObject::HttpRoute(route) => rules(&route.spec, |rule| rule.name.as_deref()),
        AnyObject::GrpcRoute(route) => rules(&route.spec, |rule| rule.name.as_deref()),
        AnyObject::TlsRoute(route) | AnyObject::TcpRoute(route) | AnyObject::UdpRoute(route) => {
            rules(&route.spec, |rule| rule.name.as_deref())
        }
        AnyObject::GatewayClass(_)
        | AnyObject::ReferenceGrant(_)
        | AnyObject::BackendTlsPolicy(_)
        | AnyObject::Service(_)
        | AnyObject::EndpointSlice(_)
        | AnyObject::Secret(_)
        | AnyObject::ConfigMap(_)
        | AnyObject::Namespace(_) => Ok(()),
    }
}

fn listeners(listeners: &[Listener]) -> Result<(), Reason> {
    for (index, listener) in listeners.iter().enumerate() {
        let field = || format!("spec.listeners[{index}].name");
        expect(
            is_dns_subdomain(&listener.name),
            field,
            &listener.name,
            SUBDOMAIN,
        )?;
    }
    Ok(())
}

fn rules<R>(spec: &RouteSpec<R>, name: impl Fn(&R) -> Option<&str>) -> Result<(), Reason> {
    for (index, rule) in spec.rules.iter().enumerate() {
        if let Some(name) = name(rule) {
            expect(
                is_dns_subdomain(name),
                || format!("spec.rules[{index}].name"),
                name,
                SUBDOMAIN,
            )?;
        }
    }
    Ok(())
}

fn expect(
    holds: bool,
    field: impl Fn() -> String,
    value: &str,
    expected: &'static str,
) -> Result<(), Reason> {
    if holds {
        return Ok(());
    }
    let mut cut: String = value.chars().take(64).collect();
    if cut.len() < value.len() {
        cut.push('…');
    }
    Err(Reason::Name {
        field: field(),
        value: cut,
        expected,
    })
}
