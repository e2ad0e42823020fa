//! What becomes of a few routes that have changed, without a resolution of everything. Pure.
//!
//! What a route gets, and what its status says, depends on listeners, Services and the like, and of other routes only on
//! those that have a hostname in common with it: its neighbours. So a world of these alone is resolved twice, with the
//! routes as they were and as they are. What a changed route says and gets is the same there as in the whole world, and
//! so are the virtual hosts that it has a part in. If the two outcomes differ in virtual hosts and the statuses of routes
//! only, so do those of the whole world; if in more, only a whole resolution tells.
//!
//! Of a neighbour not everything is known: its other virtual hosts lack the neighbours' neighbours, so that what seems to
//! be reached there may be hidden. Whether a Backend has lost its last user, or a match the last host in which it is
//! reached, is therefore not told: what changes must send to the same Backends as before, and hide the same.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::other_hosts::other_hosts;
use sesame_proto::schema::{Snapshot, VirtualHost};

use super::hostnames::covers;
use super::parents::gateways_of;
use super::shadowed::Hidden;
use super::{Options, Resolution, ResolvedGateway, Resolver, tables};
use crate::api::{NamespacedName, RouteSpec};
use crate::status::{RouteStatus, Statuses};
use crate::world::{AnyObject, Kind, Named, ObjectKey, Objects, World};

/// With more of them, a whole resolution is hardly more work.
const MOST_CHANGED: usize = 32;
const MOST_NEIGHBOURS: usize = 256;

/// Routes that have changed, as they were.
pub type Before = BTreeMap<ObjectKey, AnyObject>;

/// A Gateway and its virtual hosts that are others now, each with the name of its table.
pub type GatewayHosts = (NamespacedName, Vec<(String, VirtualHost)>);

/// What is different now.
#[derive(Debug, Default)]
pub struct Rerouted {
    /// By Gateway; there is a virtual host of that name in that table.
    pub hosts: Vec<GatewayHosts>,
    /// By route.
    pub statuses: Vec<OtherStatus>,
}

/// A route whose status is another now.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherStatus {
    /// The route.
    pub route: ObjectKey,
    /// As it was.
    pub before: RouteStatus,
    /// As it is.
    pub now: RouteStatus,
}

/// Whether changes of the kind may be told by [`reroute`].
pub fn is_of(kind: Kind) -> bool {
    matches!(kind, Kind::HttpRoute | Kind::GrpcRoute)
}

/// What is different from when the routes were as they were `before`; none if only a whole resolution tells. `resolver`
/// is one for this alone: of a whole world it would remember nothing afterwards.
pub fn reroute(
    world: &World,
    before: &Before,
    resolver: &mut Resolver,
    options: &Options,
) -> Option<Rerouted> {
    if before.len() > MOST_CHANGED {
        return None;
    }
    let now = neighbourhood(world, before)?;
    let mut then = now.clone();
    for route in before.values() {
        then.insert(route.clone());
    }
    let then = resolver.resolve_by_host(&then, options);
    differences(then, resolver.resolve_by_host(&now, options))
}

/// Everything that has a say in what becomes of the routes, as they were and as they are.
fn neighbourhood(world: &World, before: &Before) -> Option<World> {
    let now: Vec<AnyObject> = before
        .keys()
        .map(|key| world.get(key))
        .collect::<Option<_>>()?;
    let mut hostnames: BTreeSet<&str> = BTreeSet::new();
    let mut parents: BTreeSet<(&str, &str)> = BTreeSet::new();
    for route in before.values().chain(&now) {
        let (of, gateways) = match route {
            AnyObject::HttpRoute(route) => {
                let gateways = gateways_of(&route.metadata, &route.spec, world);
                (route.spec.hostnames.as_slice(), gateways)
            }
            AnyObject::GrpcRoute(route) => {
                let gateways = gateways_of(&route.metadata, &route.spec, world);
                (route.spec.hostnames.as_slice(), gateways)
            }
            _ => return None,
        };
        parents.extend(gateways);
        if of.is_empty() {
            hostnames.insert("");
        }
        hostnames.extend(of.iter().map(String::as_str));
    }
    let near = |other: &str| {
        hostnames
            .iter()
            .any(|own| covers(own, other) || covers(other, own))
    };
    let World {
        gateway_classes,
        gateways,
        listener_sets,
        http_routes,
        grpc_routes,
        // They have tables of their own, or none.
        tls_routes: _,
        tcp_routes: _,
        udp_routes: _,
        reference_grants,
        backend_tls_policies,
        services,
        // No table depends on them.
        endpoint_slices: _,
        secrets,
        config_maps,
        namespaces,
        last_good,
    } = world;
    let mut around = World {
        gateway_classes: gateway_classes.clone(),
        gateways: gateways.clone(),
        listener_sets: listener_sets.clone(),
        http_routes: only(http_routes, |route| is_near(&route.spec, near))?,
        grpc_routes: only(grpc_routes, |route| is_near(&route.spec, near))?,
        reference_grants: reference_grants.clone(),
        backend_tls_policies: backend_tls_policies.clone(),
        services: services.clone(),
        secrets: secrets.clone(),
        config_maps: config_maps.clone(),
        namespaces: namespaces.clone(),
        last_good: last_good.clone(),
        ..World::default()
    };
    around.gateways.retain(|gateway| {
        let metadata = &gateway.metadata;
        parents.contains(&(metadata.namespace.as_str(), metadata.name.as_str()))
    });
    Some(around)
}

fn is_near<R>(spec: &RouteSpec<R>, near: impl Fn(&str) -> bool) -> bool {
    if spec.hostnames.is_empty() {
        return near("");
    }
    spec.hostnames.iter().any(|hostname| near(hostname))
}

/// Those of the objects; none if they are too many.
fn only<T: Named>(objects: &Objects<T>, wanted: impl Fn(&T) -> bool) -> Option<Objects<T>> {
    let mut found = Objects::default();
    for object in objects.iter().filter(|object| wanted(object)) {
        if found.len() == MOST_NEIGHBOURS {
            return None;
        }
        found.insert(object.clone());
    }
    Some(found)
}

fn differences(
    (then, hidden_then): (Resolution, Hidden),
    (now, hidden_now): (Resolution, Hidden),
) -> Option<Rerouted> {
    let Resolution {
        gateways,
        statuses,
        problems,
        // The Secrets are the same.
        last_good: _,
    } = now;
    let Statuses {
        gateway_classes,
        gateways: of_gateways,
        listener_sets,
        routes,
        backend_tls_policies,
    } = statuses;
    let mut before = then.statuses;
    if gateway_classes != before.gateway_classes
        || of_gateways != before.gateways
        || listener_sets != before.listener_sets
        || backend_tls_policies != before.backend_tls_policies
        || !routes.keys().eq(before.routes.keys())
        || gateways.len() != then.gateways.len()
        || problems != then.problems
        || hidden_now != hidden_then
    {
        return None;
    }
    let mut rerouted = Rerouted::default();
    for (then, now) in then.gateways.into_iter().zip(gateways) {
        let (name, hosts) = hosts_of(then, now)?;
        if !hosts.is_empty() {
            rerouted.hosts.push((name, hosts));
        }
    }
    for (route, now) in routes {
        let before = before.routes.remove(&route)?;
        if before != now {
            let other = OtherStatus { route, before, now };
            rerouted.statuses.push(other);
        }
    }
    Some(rerouted)
}

fn hosts_of(then: ResolvedGateway, now: ResolvedGateway) -> Option<GatewayHosts> {
    let tables = |resolved: ResolvedGateway| {
        let ResolvedGateway {
            gateway,
            mut snapshot,
            keys,
        } = resolved;
        let tables = std::mem::take(&mut snapshot.route_tables);
        let rest: (NamespacedName, Snapshot, Vec<_>) = (gateway, snapshot, keys);
        (rest, tables)
    };
    let ((then, old_tables), (now, new_tables)) = (tables(then), tables(now));
    if then != now {
        return None;
    }
    let others = other_hosts(old_tables, new_tables)?;
    // What a neighbour seems to send to elsewhere may not be reached there.
    let (mut sent_to, mut sends_to) = (BTreeSet::new(), BTreeSet::new());
    for other in &others {
        tables::backends_of(&other.before, &mut sent_to);
        tables::backends_of(&other.after, &mut sends_to);
    }
    if sends_to != sent_to {
        return None;
    }
    // Nor may sessions be kept there.
    let (mut kept, mut keeps) = (BTreeSet::new(), BTreeSet::new());
    for other in &others {
        tables::session_backends_of(&other.before, &mut kept);
        tables::session_backends_of(&other.after, &mut keeps);
    }
    if keeps != kept {
        return None;
    }
    let hosts = others.into_iter().map(|other| (other.table, other.after));
    Some((now.0, hosts.collect()))
}
