//! Finds the neighbors of routes: all objects that can affect how the routes are resolved.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::routes::PreviousRoutes;
use crate::Options;
use crate::gateways::classes::Classes;
use crate::ingresses::{explicit_hosts, has_more_names};
use crate::parents::gateways_of;
use crate::syntax::hostnames::{covers, meant};
use crate::syntax::limits::MAX_REFUSED_HOSTNAMES;
use sesame_kinds::api::{
    FleetGateways, Gateway, HttpProxy, HttpProxySpec, Ingress, IngressSpec, Metadata,
    PolicyTargetRef, RouteSpec,
};
use sesame_kinds::world::{AnyObject, Kind, Named, Objects, World};

/// Maximum number of neighbors per kind. With more, a full resolution is hardly slower.
const MAX_NEIGHBOURS: usize = 256;

pub(super) fn neighbourhood(
    world: &World,
    before: &PreviousRoutes,
    options: &Options,
) -> Option<World> {
    let now: Vec<AnyObject> = before
        .keys()
        .map(|key| world.get(key))
        .collect::<Option<_>>()?;
    let mut hostnames: BTreeSet<Cow<'_, str>> = BTreeSet::new();
    let mut parents: BTreeSet<(&str, &str)> = BTreeSet::new();
    for route in before.values().chain(&now) {
        let (of, gateways) = match route {
            AnyObject::HttpRoute(route) => reach(&route.metadata, &route.spec, world),
            AnyObject::GrpcRoute(route) => reach(&route.metadata, &route.spec, world),
            _ => return None,
        };
        parents.extend(gateways);
        hostnames.extend(hosts(of));
    }
    let near = |other: &str| {
        hostnames
            .iter()
            .any(|own| covers(own, other) || covers(other, own))
    };
    let http_routes = only(&world.http_routes, |route| is_near(&route.spec, near))?;
    let grpc_routes = only(&world.grpc_routes, |route| is_near(&route.spec, near))?;
    let is_far = |kind: &str, namespace: &str, name: &str| match Kind::parse(kind) {
        Some(Kind::HttpRoute) => http_routes.get(namespace, name).is_none(),
        Some(Kind::GrpcRoute) => grpc_routes.get(namespace, name).is_none(),
        _ => false,
    };
    Some(World {
        gateways: around(&world.gateways, &parents, &Classes::check(world, options)),
        traffic_policies: near_policies(&world.traffic_policies, is_far, |it| {
            (&it.metadata, &it.spec.target_refs)
        }),
        access_policies: near_policies(&world.access_policies, is_far, |it| {
            (&it.metadata, &it.spec.target_refs)
        }),
        // TLSRoutes can take hostnames away from Ingress listeners.
        tls_routes: only(&world.tls_routes, |route| is_near(&route.spec, near))?,
        ingresses: near_ingresses(&world.ingresses, near)?,
        http_proxies: far_proxies(&world.http_proxies, near)?,
        http_routes,
        grpc_routes,
        ..world.without(&REDUCED)
    })
}

/// Kinds of which only some objects are needed, or none.
const REDUCED: [Kind; 13] = [
    Kind::Gateway,
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TlsRoute,
    Kind::Ingress,
    Kind::HttpProxy,
    Kind::TrafficPolicy,
    Kind::AccessPolicy,
    // TCPRoutes and UDPRoutes have no route tables.
    Kind::TcpRoute,
    Kind::UdpRoute,
    // Only HTTPProxies with routes use ExtensionServices, and routes are not kept.
    Kind::ExtensionService,
    // Neither route tables nor Backends depend on endpoints.
    Kind::EndpointSlice,
    Kind::Pod,
];

/// Omits policies that target only other routes.
fn near_policies<T: Named>(
    policies: &Objects<T>,
    is_far: impl Fn(&str, &str, &str) -> bool,
    targets: impl Fn(&T) -> (&Metadata, &[PolicyTargetRef]),
) -> Objects<T> {
    let mut near = policies.clone();
    near.retain(|policy| {
        let (metadata, targets) = targets(policy);
        let mut targets = targets.iter();
        targets.any(|it| !is_far(&it.kind, &metadata.namespace, &it.name))
    });
    near
}

fn around(
    gateways: &Objects<Gateway>,
    parents: &BTreeSet<(&str, &str)>,
    classes: &Classes<'_>,
) -> Objects<Gateway> {
    let is_shared = |gateway: &Gateway| {
        let class = classes.get(&gateway.spec.gateway_class_name);
        class.is_some_and(|class| *class.gateways() != FleetGateways::Isolated)
    };
    let mut around = gateways.clone();
    around.retain(|gateway| {
        let metadata = &gateway.metadata;
        let name = (metadata.namespace.as_str(), metadata.name.as_str());
        parents.contains(&name) || is_shared(gateway)
    });
    around
}

fn reach<'w, R>(
    metadata: &'w Metadata,
    spec: &'w RouteSpec<R>,
    world: &'w World,
) -> (&'w [String], Vec<(&'w str, &'w str)>) {
    (&spec.hostnames, gateways_of(metadata, spec, world))
}

fn is_near<R>(spec: &RouteSpec<R>, near: impl Fn(&str) -> bool) -> bool {
    hosts(&spec.hostnames).any(|hostname| near(&hostname))
}

/// Keeps only the listeners of other Ingresses, because listeners may conflict.
fn near_ingresses(
    ingresses: &Objects<Ingress>,
    near: impl Fn(&str) -> bool,
) -> Option<Objects<Ingress>> {
    // Any Ingress's rules take precedence over additional names of Ingress hosts.
    if ingresses.iter().any(|it| has_more_names(&it.metadata)) {
        return None;
    }
    let mut found = only(ingresses, |ingress| is_ingress_near(ingress, &near))?;
    for ingress in ingresses {
        let key = &ingress.metadata;
        if ingress.spec.tls.is_empty() || found.get(&key.namespace, &key.name).is_some() {
            continue;
        }
        let without_rules = Ingress {
            metadata: ingress.metadata.clone(),
            spec: IngressSpec {
                ingress_class_name: ingress.spec.ingress_class_name.clone(),
                tls: explicit_hosts(&ingress.spec),
                ..IngressSpec::default()
            },
        };
        found.insert(without_rules.into());
    }
    Some(found)
}

/// Returns `None` if a root HTTPProxy is a neighbor, because other HTTPProxies may define its
/// routes.
fn far_proxies(
    proxies: &Objects<HttpProxy>,
    near: impl Fn(&str) -> bool,
) -> Option<Objects<HttpProxy>> {
    let mut found = Objects::default();
    for proxy in proxies {
        let Some(virtualhost) = &proxy.spec.virtualhost else {
            continue;
        };
        if near(&meant(&virtualhost.fqdn)) {
            return None;
        }
        if virtualhost.tls.is_none() && proxy.spec.tcpproxy.is_none() {
            continue;
        }
        let without_routes = HttpProxy {
            metadata: proxy.metadata.clone(),
            spec: HttpProxySpec {
                virtualhost: Some(virtualhost.clone()),
                tcpproxy: proxy.spec.tcpproxy.clone(),
                ingress_class_name: proxy.spec.ingress_class_name.clone(),
                ..HttpProxySpec::default()
            },
        };
        found.insert(without_routes.into());
    }
    Some(found)
}

fn is_ingress_near(ingress: &Ingress, near: impl Fn(&str) -> bool) -> bool {
    let IngressSpec {
        ingress_class_name: _,
        default_backend,
        // The listeners of all Ingresses are kept.
        tls: _,
        rules,
    } = &ingress.spec;
    let mut hosts = rules.iter().map(|rule| meant(&rule.host));
    default_backend.is_some() && near("") || hosts.any(|host| near(&host))
}

/// Invalid routes also have virtual hosts, which reject requests.
fn hosts(hostnames: &[String]) -> impl Iterator<Item = Cow<'_, str>> {
    let all = hostnames.is_empty() || hostnames.len() > MAX_REFUSED_HOSTNAMES;
    let each = hostnames.iter().map(|hostname| meant(hostname));
    all.then_some(Cow::Borrowed("")).into_iter().chain(each)
}

fn only<T: Named>(objects: &Objects<T>, wanted: impl Fn(&T) -> bool) -> Option<Objects<T>> {
    let mut found = Objects::default();
    for object in objects.iter().filter(|object| wanted(object)) {
        if found.len() == MAX_NEIGHBOURS {
            return None;
        }
        found.insert(object.clone());
    }
    Some(found)
}
