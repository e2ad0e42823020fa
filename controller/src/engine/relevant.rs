//! Finds the Services and Pods that resolution looks at. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};

use sesame_gateway_api::api::{
    BackendRef, ExternalAuth, Filter, NamespacedName, RequestMirror, RouteSpec, TracingSettings,
};
use sesame_gateway_api::world::{AnyObject, World};

/// Labels that select Pods.
type Selector = BTreeMap<String, String>;

/// Services that routes, listeners, policies and configurations refer to, and Pods that XBackends select.
#[derive(Debug, Default)]
pub(super) struct Relevant {
    services: HashSet<NamespacedName>,
    /// Labels that select Pods, by namespace.
    selectors: HashMap<String, Vec<Selector>>,
}

impl Relevant {
    /// Collects the references of all routes, listeners, policies and configurations, ours or not.
    pub(super) fn of(world: &World) -> Self {
        let mut named = ServiceNames::default();
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
        let own = world.gateways.iter();
        let own = own.map(|it| (&it.metadata.namespace, &it.spec.listeners));
        let sets = world.listener_sets.iter();
        let sets = sets.map(|it| (&it.metadata.namespace, &it.spec.listeners));
        for (namespace, listeners) in own.chain(sets) {
            let filters = listeners.iter().filter_map(|it| it.filters.as_ref());
            for filter in filters.flat_map(|filters| &filters.requests) {
                if let Some(ExternalAuth { backend_ref, .. }) = filter.external_auth.as_deref() {
                    named.backend(namespace, backend_ref);
                }
            }
        }
        for policy in &world.backend_tls_policies {
            for target in &policy.spec.target_refs {
                named.0.insert((&policy.metadata.namespace, &target.name));
            }
        }
        for policy in &world.x_telemetry_policies {
            let tracing = policy.spec.tracing.as_ref();
            named.collector(&policy.metadata.namespace, tracing);
        }
        for configuration in &world.configurations {
            let tracing = configuration.spec.tracing.as_ref();
            named.collector(&configuration.metadata.namespace, tracing);
        }
        let own = |(namespace, name): (&str, &str)| NamespacedName::new(namespace, name);
        let mut selectors: HashMap<String, Vec<Selector>> = HashMap::new();
        for backend in &world.x_backends {
            if let Some(selector) = &backend.spec.endpoint_selector {
                let namespace = backend.metadata.namespace.clone();
                let of_namespace = selectors.entry(namespace).or_default();
                of_namespace.push(selector.match_labels.clone());
            }
        }
        Self {
            services: named.0.into_iter().map(own).collect(),
            selectors,
        }
    }

    /// Returns true if the outcome of resolution may change once this object is there, changed or gone.
    pub(super) fn holds(&self, object: &AnyObject) -> bool {
        match object {
            AnyObject::Service(service) => self.services.contains(&service.metadata.key()),
            AnyObject::Pod(pod) => {
                let labels = &pod.metadata.labels;
                let selectors = self.selectors.get(&pod.metadata.namespace);
                selectors.into_iter().flatten().any(|selector| {
                    let mut wanted = selector.iter();
                    wanted.all(|(key, value)| labels.get(key) == Some(value))
                })
            }
            _ => true,
        }
    }
}

/// Namespaces and names.
#[derive(Default)]
struct ServiceNames<'w>(HashSet<(&'w str, &'w str)>);

impl<'w> ServiceNames<'w> {
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

    fn collector(&mut self, namespace: &'w str, tracing: Option<&'w TracingSettings>) {
        if let Some(provider) = tracing.and_then(|tracing| tracing.provider.as_ref()) {
            let collector = &provider.backend_ref;
            let namespace = collector.namespace.as_deref().unwrap_or(namespace);
            self.0.insert((namespace, &collector.name));
        }
    }

    fn backend(&mut self, namespace: &'w str, backend: &'w BackendRef) {
        let namespace = backend.namespace.as_deref().unwrap_or(namespace);
        self.0.insert((namespace, &backend.name));
    }
}
