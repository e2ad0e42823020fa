//! Names of each kind in the paths of the API server.

use kube::core::{ApiResource, GroupVersionKind};

use sesame_gateway_api::world::Kind;

/// Returns the resource of a kind in a version: `group/version` or `version`.
pub(crate) fn api_resource(kind: Kind, api_version: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_names_of_the_api() {
        let plurals = Kind::ALL
            .iter()
            .map(|kind| api_resource(*kind, "v1").plural);
        let expected = "gatewayclasses gateways listenersets httproutes grpcroutes tlsroutes tcproutes udproutes \
             referencegrants backendtlspolicies services endpointslices secrets configmaps namespaces sesameconfigurations";
        let mut expected: Vec<&str> = expected.split(' ').collect();
        expected.sort_unstable();
        let mut plurals: Vec<String> = plurals.collect();
        plurals.sort_unstable();
        assert_eq!(plurals, expected);
    }
}
