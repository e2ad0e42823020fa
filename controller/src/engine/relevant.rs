//! Finds the Services that resolution looks at. Pure.

use std::collections::HashSet;

use sesame_gateway_api::api::{
    BackendRef, ExternalAuth, Filter, NamespacedName, RequestMirror, RouteSpec,
};
use sesame_gateway_api::world::{AnyObject, World};

/// Services that routes and policies refer to.
#[derive(Debug, Default)]
pub(super) struct Relevant(HashSet<NamespacedName>);

impl Relevant {
    /// Collects the references of all routes and policies, ours or not.
    pub(super) fn of(world: &World) -> Self {
        let mut named = Named::default();
        for route in &world.http_routes {
            named.routes(&route.metadata.namespace, &route.spec, |rule| {
                (&rule.backend_refs, &rule.filters)
            });
        }
        for route in &world.grpc_routes {
            named.routes(&route.metadata.namespace, &route.spec, |rule| {
                (&rule.backend_refs, &rule.filters)
            });
        }
        let l4 = [&world.tls_routes, &world.tcp_routes, &world.udp_routes];
        for route in l4.into_iter().flat_map(|routes| routes.iter()) {
            named.routes(&route.metadata.namespace, &route.spec, |rule| {
                (&rule.backend_refs, &[])
            });
        }
        for policy in &world.backend_tls_policies {
            for target in &policy.spec.target_refs {
                named.0.insert((&policy.metadata.namespace, &target.name));
            }
        }
        let own = |(namespace, name): (&str, &str)| NamespacedName::new(namespace, name);
        Self(named.0.into_iter().map(own).collect())
    }

    /// Returns true if the outcome of resolution may change once this object is there, changed or gone.
    pub(super) fn holds(&self, object: &AnyObject) -> bool {
        match object {
            AnyObject::Service(service) => self.0.contains(&service.metadata.key()),
            _ => true,
        }
    }
}

/// Namespaces and names.
#[derive(Default)]
struct Named<'w>(HashSet<(&'w str, &'w str)>);

impl<'w> Named<'w> {
    fn routes<R>(
        &mut self,
        namespace: &'w str,
        spec: &'w RouteSpec<R>,
        parts: impl Fn(&'w R) -> (&'w [BackendRef], &'w [Filter]),
    ) {
        for rule in &spec.rules {
            let (backends, filters) = parts(rule);
            self.filters(namespace, filters);
            for backend in backends {
                self.backend(namespace, backend);
                self.filters(namespace, &backend.filters);
            }
        }
    }

    fn filters(&mut self, namespace: &'w str, filters: &'w [Filter]) {
        for filter in filters {
            if let Some(RequestMirror { backend_ref, .. }) = filter.request_mirror.as_deref() {
                self.backend(namespace, backend_ref);
            }
            if let Some(ExternalAuth { backend_ref, .. }) = filter.external_auth.as_deref() {
                self.backend(namespace, backend_ref);
            }
        }
    }

    fn backend(&mut self, namespace: &'w str, backend: &'w BackendRef) {
        let namespace = backend.namespace.as_deref().unwrap_or(namespace);
        self.0.insert((namespace, &backend.name));
    }
}
