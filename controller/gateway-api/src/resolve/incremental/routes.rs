//! A few routes that have changed, resolved with their neighbours alone.
//!
//! The virtual hosts of a route and its status depend on listeners, Services and the like, and of the routes only on those
//! that have a hostname in common with it: its neighbours. So a world of these alone is resolved twice, with the routes as
//! they were and as they are. A changed route has the same status there as in the whole world, and so have the virtual hosts
//! that it has a part in the same content. If the two outcomes differ in virtual hosts and in statuses of routes only, so do
//! those of the whole world; if they differ in more, only a whole resolution tells.
//!
//! Not everything is known of a neighbour: its remaining virtual hosts lack the neighbours' neighbours, so a match that seems
//! to be reached there may be hidden. So these worlds cannot tell that a Backend has lost its last user, or a match the last
//! host in which it is reached: the changed virtual hosts must send to the same Backends as before, and hide the same.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::delta::{ChangedHost, RouteTableDelta};
use sesame_proto::schema::{Snapshot, VirtualHost};

use crate::api::{FleetGateways, Gateway, Metadata, NamespacedName, RouteSpec};
use crate::resolve::gateways::classes::Classes;
use crate::resolve::parents::gateways_of;
use crate::resolve::syntax::hostnames::{covers, meant};
use crate::resolve::syntax::limits::MAX_REFUSED_HOSTNAMES;
use crate::resolve::tables::shadowed::Hidden;
use crate::resolve::{Options, Resolution, ResolvedGateway, Resolver, tables};
use crate::status::{RouteStatus, Statuses};
use crate::world::{AnyObject, Kind, Named, ObjectKey, Objects, World};

/// Number of changed routes, and of neighbours of a kind, at most: with more, a whole resolution is hardly more work.
const MAX_CHANGED: usize = 32;
const MAX_NEIGHBOURS: usize = 256;

/// Routes that have changed, as they were when they were last resolved.
pub type PreviousRoutes = BTreeMap<ObjectKey, AnyObject>;

/// The outcome of changed routes.
#[derive(Debug, Default)]
pub struct RouteDelta {
    /// The changed virtual hosts, by Gateway.
    pub route_tables: Vec<(NamespacedName, RouteTableDelta)>,
    /// The changed statuses, by route.
    pub statuses: Vec<RouteStatusChange>,
}

/// A status of a route that has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteStatusChange {
    /// The route.
    pub route: ObjectKey,
    /// The status before the change.
    pub before: RouteStatus,
    /// The status after the change.
    pub after: RouteStatus,
}

/// Returns true if [`resolve`] takes routes of this kind.
pub fn is_incremental(kind: Kind) -> bool {
    matches!(kind, Kind::HttpRoute | Kind::GrpcRoute)
}

/// Returns the outcome of routes that were as in `before`; none if only a whole resolution tells. `resolver` is one for this
/// alone: a whole world would leave nothing of its memory.
pub fn resolve(
    world: &World,
    before: &PreviousRoutes,
    resolver: &mut Resolver,
    options: &Options,
) -> Option<RouteDelta> {
    if !options.incremental || before.len() > MAX_CHANGED {
        return None;
    }
    let now = neighbourhood(world, before, options)?;
    let mut then = now.clone();
    for route in before.values() {
        then.insert(route.clone());
    }
    let then = resolver.resolve_by_host(&then, options);
    differences(before, then, resolver.resolve_by_host(&now, options))
}

/// Returns everything that the outcome of the routes depends on, as they were and as they are.
// Long: each kind of object in turn, so that none is forgotten.
// Long: it names each kind of object.
fn neighbourhood(world: &World, before: &PreviousRoutes, options: &Options) -> Option<World> {
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
        gateway_mesh_policies,
        mesh_ocg_policies,
        x_meshes,
        x_telemetry_policies,
        x_backends,
        x_backend_traffic_policies,
        services,
        // No table depends on them.
        endpoint_slices: _,
        pods: _,
        secrets,
        config_maps,
        cluster_trust_bundles,
        namespaces,
        configurations,
        last_good,
        definitions,
        served_together,
    } = world;
    Some(World {
        gateway_classes: gateway_classes.clone(),
        gateways: around(gateways, &parents, &Classes::check(world, options)),
        listener_sets: listener_sets.clone(),
        http_routes: only(http_routes, |route| is_near(&route.spec, near))?,
        grpc_routes: only(grpc_routes, |route| is_near(&route.spec, near))?,
        reference_grants: reference_grants.clone(),
        backend_tls_policies: backend_tls_policies.clone(),
        gateway_mesh_policies: gateway_mesh_policies.clone(),
        mesh_ocg_policies: mesh_ocg_policies.clone(),
        x_meshes: x_meshes.clone(),
        x_telemetry_policies: x_telemetry_policies.clone(),
        x_backends: x_backends.clone(),
        x_backend_traffic_policies: x_backend_traffic_policies.clone(),
        services: services.clone(),
        secrets: secrets.clone(),
        config_maps: config_maps.clone(),
        cluster_trust_bundles: cluster_trust_bundles.clone(),
        namespaces: namespaces.clone(),
        configurations: configurations.clone(),
        last_good: last_good.clone(),
        definitions: definitions.clone(),
        served_together: served_together.clone(),
        ..World::default()
    })
}

/// Returns the Gateways that are parents, and those of classes in which one depends on the others.
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

/// Returns the hostnames of a route, and the Gateways that it names.
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

/// Returns the hostnames for which a route may have virtual hosts, also if it is not valid and only refuses.
fn hosts(hostnames: &[String]) -> impl Iterator<Item = Cow<'_, str>> {
    let all = hostnames.is_empty() || hostnames.len() > MAX_REFUSED_HOSTNAMES;
    let each = hostnames.iter().map(|hostname| meant(hostname));
    all.then_some(Cow::Borrowed("")).into_iter().chain(each)
}

/// Returns the objects that are wanted; none if they are too many.
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

fn differences(
    changed: &PreviousRoutes,
    (then, hidden_then): (Resolution, Hidden),
    (now, hidden_now): (Resolution, Hidden),
) -> Option<RouteDelta> {
    let Resolution {
        gateways,
        statuses,
        problems,
        // The Secrets, the configurations and the Gateways are the same.
        unserved: _,
        merged: _,
        retained: _,
        last_good: _,
        served_together: _,
        ocg_bundles: _,
        settings: _,
        services: _,
    } = now;
    let Statuses {
        gateway_classes,
        gateways: of_gateways,
        listener_sets,
        routes,
        backend_tls_policies,
        gateway_mesh_policies,
        mesh_ocg_policies,
        x_telemetry_policies,
        x_backends,
        x_backend_traffic_policies,
    } = statuses;
    let before = then.statuses;
    if gateway_classes != before.gateway_classes
        || of_gateways != before.gateways
        || listener_sets != before.listener_sets
        || backend_tls_policies != before.backend_tls_policies
        || gateway_mesh_policies != before.gateway_mesh_policies
        || mesh_ocg_policies != before.mesh_ocg_policies
        || x_telemetry_policies != before.x_telemetry_policies
        || x_backends != before.x_backends
        || x_backend_traffic_policies != before.x_backend_traffic_policies
        || !routes.keys().eq(before.routes.keys())
        || gateways.len() != then.gateways.len()
        || problems != then.problems
        || hidden_now != hidden_then
    {
        return None;
    }
    let mut delta = RouteDelta::default();
    for (then, now) in then.gateways.into_iter().zip(gateways) {
        let (name, route_tables) = route_tables_of(then, now)?;
        if !route_tables.is_empty() {
            delta.route_tables.push((name, route_tables));
        }
    }
    delta.statuses = status_changes(changed, before.routes, routes)?;
    Some(delta)
}

/// Returns the changed statuses; none if that of a route has changed which has not itself: what is said of it depends on its neighbours,
/// which are not all here.
fn status_changes(
    changed: &PreviousRoutes,
    mut before: BTreeMap<ObjectKey, RouteStatus>,
    now: BTreeMap<ObjectKey, RouteStatus>,
) -> Option<Vec<RouteStatusChange>> {
    let mut statuses = Vec::new();
    for (route, after) in now {
        let before = before.remove(&route)?;
        if before == after {
            continue;
        }
        if !changed.contains_key(&route) {
            return None;
        }
        statuses.push(RouteStatusChange {
            route,
            before,
            after,
        });
    }
    Some(statuses)
}

fn route_tables_of(
    then: ResolvedGateway,
    now: ResolvedGateway,
) -> Option<(NamespacedName, RouteTableDelta)> {
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
    let delta = RouteTableDelta::between(old_tables, new_tables)?;
    // A Backend that a neighbour seems to send to elsewhere may not be reached there; nor may sessions be kept there.
    let names = |version: fn(&ChangedHost) -> &VirtualHost| {
        let (mut reached, mut with_sessions) = (BTreeSet::new(), BTreeSet::new());
        for host in delta.hosts().iter().map(version) {
            tables::backends_of(host, &mut reached);
            tables::session_backends_of(host, &mut with_sessions);
        }
        (reached, with_sessions)
    };
    let same = names(|host| &host.before) == names(|host| &host.after);
    same.then_some((now.0, delta))
}
