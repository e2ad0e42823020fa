//! Maps kinds to API resources, and the watched namespaces to API handles.

use kube::Api;
use kube::core::{ApiResource, GroupVersionKind};

use super::{Keep, Received};
use crate::replica::Replica;
use sesame_kinds::world::Kind;

/// `api_version` is `group/version` or `version`.
pub(crate) fn api_resource(kind: Kind, api_version: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind.as_str()))
}

/// Returns one handle for the cluster, or one per watched namespace.
pub(crate) fn watched_apis<T: Keep>(
    replica: &Replica,
    kind: Kind,
    api_version: &str,
) -> Vec<Api<Received<T>>> {
    let resource = api_resource(kind, api_version);
    let client = || replica.client.clone();
    let all = || Api::all_with(client(), &resource);
    if kind.cluster_scoped() {
        return vec![all()];
    }
    let mut watched = replica.watched.clone();
    if kind == Kind::SesameConfiguration {
        // Include the controller's own namespace, even if it is not watched.
        watched.add(&replica.namespace);
    }
    watched.each(all, |namespace| {
        Api::namespaced_with(client(), namespace, &resource)
    })
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
             referencegrants backendtlspolicies backendpolicies accesspolicies trafficpolicies gatewaymeshpolicies meshocgpolicies xmeshes xtelemetrypolicies xbackends xbackendtrafficpolicies ingressclasses ingresses httpproxies tlscertificatedelegations extensionservices pods services endpointslices secrets configmaps clustertrustbundles namespaces routefilters sesameconfigurations";
        let mut expected: Vec<&str> = expected.split(' ').collect();
        expected.sort_unstable();
        let mut plurals: Vec<String> = plurals.collect();
        plurals.sort_unstable();
        assert_eq!(plurals, expected);
    }
}
