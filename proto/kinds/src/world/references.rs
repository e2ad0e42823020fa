//! Finds references to Services, including invalid references.

use super::{AnyObject, Kind, ObjectKey, World};
use crate::api::{
    BackendObjectRef, BackendRef, ExternalAuth, Filter, GrpcRule, HttpRule, Ingress, IngressSpec,
    L4Rule, Metadata, Object, RequestMirror, RouteSpec, nginx_default_backend, nginx_services,
};

/// A reference to a Service, which may not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceReference<'w> {
    /// Namespace of the Service.
    pub namespace: &'w str,
    /// Name of the Service.
    pub name: &'w str,
    /// Port, if specified.
    pub port: Option<i32>,
}

impl<'w> ServiceReference<'w> {
    fn new(namespace: &'w str, name: &'w str, port: Option<i32>) -> Self {
        Self {
            namespace,
            name,
            port,
        }
    }
}

/// Calls `visit` for each reference in `world`. For routes, also passes the kind and metadata.
pub fn each<'w>(
    world: &'w World,
    mut visit: impl FnMut(Option<(Kind, &'w Metadata)>, ServiceReference<'w>),
) {
    for route in &world.http_routes {
        let referrer = Some((Kind::HttpRoute, &route.metadata));
        of_route(route, http, &mut |reference| visit(referrer, reference));
    }
    for route in &world.grpc_routes {
        let referrer = Some((Kind::GrpcRoute, &route.metadata));
        of_route(route, grpc, &mut |reference| visit(referrer, reference));
    }
    let l4 = [
        (Kind::TlsRoute, &world.tls_routes),
        (Kind::TcpRoute, &world.tcp_routes),
        (Kind::UdpRoute, &world.udp_routes),
    ];
    for (kind, routes) in l4 {
        for route in routes {
            let referrer = Some((kind, &route.metadata));
            of_route(route, l4_parts, &mut |reference| visit(referrer, reference));
        }
    }
    for ingress in &world.ingresses {
        let referrer = Some((Kind::Ingress, &ingress.metadata));
        of_ingress(ingress, &mut |reference| visit(referrer, reference));
    }
    for proxy in &world.http_proxies {
        let referrer = Some((Kind::HttpProxy, &proxy.metadata));
        for service in proxy.spec.services() {
            let port = Some(service.port);
            let reference = ServiceReference::new(&proxy.metadata.namespace, &service.name, port);
            visit(referrer, reference);
        }
    }
    of_others(world, &mut |reference| visit(None, reference));
}

/// Calls `visit` for each reference in an HTTPRoute or GRPCRoute. Ignores other kinds.
pub fn of<'w>(object: &'w AnyObject, mut visit: impl FnMut(ServiceReference<'w>)) {
    match object {
        AnyObject::HttpRoute(route) => of_route(route, http, &mut visit),
        AnyObject::GrpcRoute(route) => of_route(route, grpc, &mut visit),
        _ => {}
    }
}

/// Returns the key of a route.
pub fn key_of((kind, metadata): (Kind, &Metadata)) -> ObjectKey {
    ObjectKey {
        kind,
        name: metadata.key(),
    }
}

fn http(rule: &HttpRule) -> (&[BackendRef], &[Filter]) {
    (&rule.backend_refs, &rule.filters)
}

fn grpc(rule: &GrpcRule) -> (&[BackendRef], &[Filter]) {
    (&rule.backend_refs, &rule.filters)
}

fn l4_parts(rule: &L4Rule) -> (&[BackendRef], &[Filter]) {
    (&rule.backend_refs, &[])
}

fn of_route<'w, R>(
    route: &'w Object<RouteSpec<R>>,
    parts: impl Fn(&'w R) -> (&'w [BackendRef], &'w [Filter]),
    visit: &mut impl FnMut(ServiceReference<'w>),
) {
    let namespace = &route.metadata.namespace;
    for rule in &route.spec.rules {
        let (backends, filters) = parts(rule);
        of_filters(namespace, filters, visit);
        for backend in backends {
            visit(reference(namespace, backend));
            of_filters(namespace, &backend.filters, visit);
        }
    }
}

fn of_ingress<'w>(ingress: &'w Ingress, visit: &mut impl FnMut(ServiceReference<'w>)) {
    let IngressSpec {
        ingress_class_name: _,
        default_backend,
        tls: _,
        rules,
    } = &ingress.spec;
    let namespace = &ingress.metadata.namespace;
    let paths = rules.iter().filter_map(|rule| rule.http.as_ref());
    let paths = paths.flat_map(|http| &http.paths);
    let backends = paths.map(|path| &path.backend).chain(default_backend);
    for service in backends.filter_map(|backend| backend.service.as_ref()) {
        let number = service.port.number;
        let port = (number != 0).then_some(number);
        visit(ServiceReference::new(namespace, &service.name, port));
    }
    if let Some(name) = nginx_default_backend(&ingress.metadata) {
        visit(ServiceReference::new(namespace, name, None));
    }
    for url in nginx_services(&ingress.metadata) {
        let port = Some(url.port.into());
        visit(ServiceReference::new(url.namespace, url.name, port));
    }
}

fn of_filters<'w>(
    namespace: &'w str,
    filters: &'w [Filter],
    visit: &mut impl FnMut(ServiceReference<'w>),
) {
    for filter in filters {
        if let Some(RequestMirror { backend_ref, .. }) = filter.request_mirror.as_deref() {
            visit(reference(namespace, backend_ref));
        }
        if let Some(ExternalAuth { backend_ref, .. }) = filter.external_auth.as_deref() {
            visit(reference(namespace, backend_ref));
        }
    }
}

fn of_others<'w>(world: &'w World, visit: &mut impl FnMut(ServiceReference<'w>)) {
    let own = world.gateways.iter();
    let own = own.map(|it| (&it.metadata.namespace, &it.spec.listeners));
    let sets = world.listener_sets.iter();
    let sets = sets.map(|it| (&it.metadata.namespace, &it.spec.listeners));
    for (namespace, listeners) in own.chain(sets) {
        let filters = listeners.iter().filter_map(|it| it.filters.as_ref());
        for filter in filters.flat_map(|filters| &filters.requests) {
            if let Some(ExternalAuth { backend_ref, .. }) = filter.external_auth.as_deref() {
                visit(reference(namespace, backend_ref));
            }
        }
    }
    for policy in &world.backend_tls_policies {
        for target in &policy.spec.target_refs {
            let namespace = &policy.metadata.namespace;
            visit(ServiceReference::new(namespace, &target.name, None));
        }
    }
    for policy in &world.access_policies {
        let auth = policy.spec.ext_auth.as_ref();
        let auth = auth.map(|it| service(&policy.metadata.namespace, &it.backend_ref));
        auth.into_iter().for_each(&mut *visit);
    }
    for policy in &world.traffic_policies {
        let limits = policy.spec.rate_limits.iter();
        for limit in limits.filter_map(|limit| limit.service.as_ref()) {
            visit(service(&policy.metadata.namespace, &limit.backend_ref));
        }
    }
    for extension in &world.extension_services {
        for target in &extension.spec.services {
            let (namespace, port) = (&extension.metadata.namespace, Some(target.port));
            visit(ServiceReference::new(namespace, &target.name, port));
        }
    }
    for policy in &world.x_telemetry_policies {
        let tracing = policy.spec.tracing.iter();
        for provider in tracing.filter_map(|tracing| tracing.provider.as_ref()) {
            visit(service(&policy.metadata.namespace, &provider.backend_ref));
        }
    }
    for configuration in &world.configurations {
        let tracing = configuration.spec.tracing.iter();
        let providers = tracing.filter_map(|tracing| tracing.provider.as_ref());
        let log = configuration.spec.access_log.iter();
        let sinks = log.flat_map(|log| &log.sinks).flatten();
        let span_receivers = providers.map(|provider| &provider.backend_ref);
        for receiver in span_receivers.chain(sinks.map(|sink| &sink.backend_ref)) {
            visit(service(&configuration.metadata.namespace, receiver));
        }
    }
}

fn service<'w>(namespace: &'w str, reference: &'w BackendObjectRef) -> ServiceReference<'w> {
    let namespace = reference.namespace.as_deref().unwrap_or(namespace);
    ServiceReference::new(namespace, &reference.name, reference.port)
}

fn reference<'w>(namespace: &'w str, backend: &'w BackendRef) -> ServiceReference<'w> {
    let namespace = backend.namespace.as_deref().unwrap_or(namespace);
    ServiceReference::new(namespace, &backend.name, backend.port)
}
