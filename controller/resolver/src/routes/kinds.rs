//! Route kinds and the list sizes that their API schemas allow.

use std::ops::RangeInclusive;

use crate::backends::Traffic;
use sesame_kinds::api::{GrpcRule, HttpRule, L4Rule, Metadata, Object, ParentRef, RouteSpec};
use sesame_kinds::world::{Kind, Objects, World};

pub(crate) struct Route<'w> {
    pub(crate) kind: Kind,
    pub(crate) metadata: &'w Metadata,
    pub(crate) parent_refs: &'w [ParentRef],
    pub(crate) spec: Spec<'w>,
}

/// TLSRoutes, TCPRoutes and UDPRoutes share one Rust type.
#[derive(Clone, Copy)]
pub(crate) enum Spec<'w> {
    Http(&'w RouteSpec<HttpRule>),
    Grpc(&'w RouteSpec<GrpcRule>),
    Connections(&'w RouteSpec<L4Rule>),
}

/// Sorts by age, then by name, then by kind.
pub(crate) fn oldest_first(world: &World) -> Vec<Route<'_>> {
    fn add<'w, R>(
        routes: &mut Vec<Route<'w>>,
        kind: Kind,
        objects: &'w Objects<Object<RouteSpec<R>>>,
        spec: fn(&'w RouteSpec<R>) -> Spec<'w>,
    ) {
        routes.extend(objects.iter().map(|object| Route {
            kind,
            metadata: &object.metadata,
            parent_refs: &object.spec.parent_refs,
            spec: spec(&object.spec),
        }));
    }
    let mut routes = Vec::new();
    add(&mut routes, Kind::HttpRoute, &world.http_routes, Spec::Http);
    add(&mut routes, Kind::GrpcRoute, &world.grpc_routes, Spec::Grpc);
    for (kind, objects) in [
        (Kind::TlsRoute, &world.tls_routes),
        (Kind::TcpRoute, &world.tcp_routes),
        (Kind::UdpRoute, &world.udp_routes),
    ] {
        add(&mut routes, kind, objects, Spec::Connections);
    }
    routes.sort_by(|a, b| a.metadata.by_age(b.metadata));
    routes
}

pub(crate) struct RouteLimits {
    pub(crate) hostnames: RangeInclusive<usize>,
    pub(crate) rules: RangeInclusive<usize>,
    pub(crate) traffic: Traffic,
}

impl RouteLimits {
    pub(crate) fn of(kind: Kind) -> Self {
        let (hostnames, rules, traffic) = match kind {
            Kind::GrpcRoute => (0..=16, 0..=16, Traffic::Grpc),
            Kind::TlsRoute => (1..=1024, 1..=1, Traffic::Connections),
            Kind::TcpRoute => (0..=0, 1..=1, Traffic::Bytes),
            Kind::UdpRoute => (0..=0, 1..=1, Traffic::Datagrams),
            _ => (0..=16, 0..=16, Traffic::Http),
        };
        Self {
            hostnames,
            rules,
            traffic,
        }
    }
}
