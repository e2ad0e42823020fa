//! Names of each kind in the paths of the API server.

use kube::core::ApiResource;

use sesame_gateway_api::world::Kind;

/// Returns the plural name of a kind.
pub(super) fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::GatewayClass => "gatewayclasses",
        Kind::Gateway => "gateways",
        Kind::ListenerSet => "listenersets",
        Kind::HttpRoute => "httproutes",
        Kind::GrpcRoute => "grpcroutes",
        Kind::TlsRoute => "tlsroutes",
        Kind::TcpRoute => "tcproutes",
        Kind::UdpRoute => "udproutes",
        Kind::ReferenceGrant => "referencegrants",
        Kind::BackendTlsPolicy => "backendtlspolicies",
        Kind::Service => "services",
        Kind::EndpointSlice => "endpointslices",
        Kind::Secret => "secrets",
        Kind::ConfigMap => "configmaps",
        Kind::Namespace => "namespaces",
    }
}

/// Returns the resource of a kind in a version: `group/version` or `version`.
pub(crate) fn api_resource(kind: Kind, api_version: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.as_str().to_owned(),
        plural: plural(kind).to_owned(),
    }
}
