//! Validates names as an API server would. Names become part of resource names, paths and metrics.

use sesame_proto::dns_name::{is_dns_label, is_dns_subdomain};

use super::Reason;
use crate::api::{Listener, RouteSpec};
use crate::world::{AnyObject, Kind};

struct NameFormat {
    holds: fn(&str) -> bool,
    expected: &'static str,
}

const SUBDOMAIN: NameFormat = NameFormat {
    holds: is_dns_subdomain,
    expected: "expected at most 253 lowercase letters, digits, `-` and `.`, \
               each part starting and ending with a letter or digit",
};
const LABEL: NameFormat = NameFormat {
    holds: is_dns_label,
    expected: "expected at most 63 lowercase letters, digits and `-`, \
               starting and ending with a letter or digit",
};

/// The name of a signer-linked bundle starts with the signer's name and contains colons.
const SIGNED: NameFormat = NameFormat {
    holds: |name| name.len() <= 253 && name.split(':').all(is_dns_subdomain),
    expected: "expected at most 253 lowercase letters, digits, `-`, `.` and `:`, \
               each part starting and ending with a letter or digit",
};

/// Also checks the names of listeners and rules.
pub(super) fn check(object: &AnyObject) -> Result<(), Reason> {
    let metadata = object.metadata();
    let format = match object.kind() {
        Kind::Namespace => LABEL,
        Kind::ClusterTrustBundle => SIGNED,
        _ => SUBDOMAIN,
    };
    format.check(&metadata.name, || "metadata.name".to_owned())?;
    if !metadata.namespace.is_empty() {
        LABEL.check(&metadata.namespace, || "metadata.namespace".to_owned())?;
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
        | AnyObject::GatewayMeshPolicy(_)
        | AnyObject::MeshOcgPolicy(_)
        | AnyObject::XMesh(_)
        | AnyObject::XTelemetryPolicy(_)
        | AnyObject::XBackend(_)
        | AnyObject::XBackendTrafficPolicy(_)
        | AnyObject::IngressClass(_)
        | AnyObject::Ingress(_)
        | AnyObject::HttpProxy(_)
        | AnyObject::TlsCertificateDelegation(_)
        | AnyObject::ExtensionService(_)
        | AnyObject::Service(_)
        | AnyObject::EndpointSlice(_)
        | AnyObject::Pod(_)
        | AnyObject::Secret(_)
        | AnyObject::ConfigMap(_)
        | AnyObject::ClusterTrustBundle(_)
        | AnyObject::Namespace(_)
        | AnyObject::BackendPolicy(_)
        | AnyObject::AccessPolicy(_)
        | AnyObject::TrafficPolicy(_)
        | AnyObject::RouteFilter(_)
        | AnyObject::SesameConfiguration(_) => Ok(()),
    }
}

fn listeners(listeners: &[Listener]) -> Result<(), Reason> {
    for (index, listener) in listeners.iter().enumerate() {
        let field = || format!("spec.listeners[{index}].name");
        SUBDOMAIN.check(&listener.name, field)?;
    }
    Ok(())
}

fn rules<R>(spec: &RouteSpec<R>, name: impl Fn(&R) -> Option<&str>) -> Result<(), Reason> {
    for (index, rule) in spec.rules.iter().enumerate() {
        if let Some(name) = name(rule) {
            SUBDOMAIN.check(name, || format!("spec.rules[{index}].name"))?;
        }
    }
    Ok(())
}

impl NameFormat {
    fn check(&self, value: &str, field: impl Fn() -> String) -> Result<(), Reason> {
        if (self.holds)(value) {
            return Ok(());
        }
        let mut cut: String = value.chars().take(64).collect();
        if cut.len() < value.len() {
            cut.push('…');
        }
        Err(Reason::Name {
            field: field(),
            value: cut,
            expected: self.expected,
        })
    }
}
