//! Resolves a few changed routes together with only their neighbors.
//!
//! A route's virtual hosts and status depend only on its neighbors, which are the routes that share
//! a hostname with it. A reduced world that contains only these neighbors is resolved before and
//! after the change. If the two results differ only in virtual hosts and route statuses, the whole
//! world changes in the same way.
//!
//! The neighbors' own neighbors may be missing, so a match that seems reachable may be unreachable
//! in the whole world. Changed virtual hosts must therefore use the same Backends as before, and
//! the same matches must be unreachable.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::delta::{ChangedHost, GatewayDelta, RouteTableDelta};
use sesame_proto::schema::{Snapshot, VirtualHost};
use sesame_proto::sizes::MAX_PER_GATEWAY;

use super::backends::{self, KnownServices, PreviousServices, SetsOfServices, Upstreams};
use super::neighbours::neighbourhood;
use crate::tables::shadowed::Hidden;
use crate::{Options, Resolution, ResolvedGateway, Resolver, tables, with_implied_gateway};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{RouteStatus, Statuses};
use sesame_kinds::world::{AnyObject, Kind, ObjectKey, World};

/// Maximum number of changed routes. With more, a full resolution is hardly slower.
pub(super) const MAX_CHANGED: usize = 32;

/// The previous versions of changed routes.
pub type PreviousRoutes = BTreeMap<ObjectKey, AnyObject>;

/// The previous versions of changed routes and Services.
#[derive(Clone, Debug, Default)]
pub struct PreviousObjects {
    /// The changed routes.
    pub routes: PreviousRoutes,
    /// The changed Services.
    pub services: PreviousServices,
}

/// The results of changes to routes.
#[derive(Debug, Default)]
pub struct RouteDelta {
    /// The changes to each affected Gateway.
    pub gateways: Vec<(NamespacedName, GatewayDelta)>,
    /// The changes to route statuses, at most one per route.
    pub statuses: Vec<RouteStatusChange>,
}

/// A change to a route's status.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteStatusChange {
    /// The route.
    pub route: ObjectKey,
    /// The status before the change.
    pub before: RouteStatus,
    /// The status after the change.
    pub after: RouteStatus,
}

/// Returns true if [`resolve`] supports routes of this kind.
pub fn is_incremental(kind: Kind) -> bool {
    matches!(kind, Kind::HttpRoute | Kind::GrpcRoute)
}

/// Returns the effect of the changes, or `None` if a full resolution is needed. `resolver` must
/// have resolved the previous state of the world.
pub fn resolve(
    world: &World,
    before: PreviousObjects,
    sets_of: SetsOfServices<'_>,
    resolver: &mut Resolver,
    options: &Options,
) -> Option<RouteDelta> {
    let PreviousObjects {
        mut routes,
        services,
    } = before;
    if routes.len() > MAX_CHANGED || services.len() > MAX_CHANGED {
        return None;
    }
    let world = &*with_implied_gateway(world, options);
    let known = backends::add_users(world, &services, &mut routes);
    if !services.keys().all(|service| known.contains(service)) {
        return None;
    }
    let options = &Options {
        implied_gateway: false,
        ..options.clone()
    };
    let now = neighbourhood(world, &routes, options)?;
    let mut before = now.clone();
    for route in routes.values() {
        before.insert(route.clone());
    }
    for (name, service) in services {
        match service {
            Some(service) => before.services.insert(service),
            None => {
                before.services.remove(&name);
            }
        }
    }
    let neighbours = resolver.neighbours.get_or_insert_default();
    let before = neighbours.resolve_by_host(&before, options);
    let sizes_before = std::mem::take(&mut neighbours.sizes);
    let now = neighbours.resolve_by_host(&now, options);
    let sizes_now = std::mem::take(&mut neighbours.sizes);
    let most = options.max_route_bytes;
    let sizes = sizes_after(&resolver.sizes, &sizes_before, &sizes_now, most)?;
    let delta = differences(&routes, &known, sets_of, before, now)?;
    resolver.sizes.extend(sizes);
    Some(delta)
}

/// Returns `None` if a limit may be exceeded, because the choice of excluded routes depends on all
/// routes.
fn sizes_after(
    known: &BTreeMap<NamespacedName, u64>,
    old: &BTreeMap<NamespacedName, u64>,
    now: &BTreeMap<NamespacedName, u64>,
    most: u64,
) -> Option<BTreeMap<NamespacedName, u64>> {
    let size_after = |(gateway, now): (&NamespacedName, &u64)| {
        let before = *known.get(gateway)?;
        let others = before.checked_sub(*old.get(gateway)?)?;
        let after = others.checked_add(*now)?;
        let has_room = before.max(after) <= MAX_PER_GATEWAY;
        has_room.then(|| (gateway.clone(), after))
    };
    let sizes: BTreeMap<NamespacedName, u64> = now.iter().map(size_after).collect::<Option<_>>()?;
    let total = |size_of: &dyn Fn(&NamespacedName, u64) -> u64| {
        let all = known.iter().map(|(gateway, size)| size_of(gateway, *size));
        all.fold(0_u64, |sum, size| {
            sum.saturating_add(size.min(MAX_PER_GATEWAY))
        })
    };
    let before = total(&|_, size| size);
    let after = total(&|gateway, size| sizes.get(gateway).copied().unwrap_or(size));
    (before.max(after) <= most).then_some(sizes)
}

fn differences(
    changed: &PreviousRoutes,
    known: &KnownServices,
    sets_of: SetsOfServices<'_>,
    (old, hidden_old): (Resolution, Hidden),
    (now, hidden_now): (Resolution, Hidden),
) -> Option<RouteDelta> {
    let Resolution {
        gateways,
        statuses,
        problems,
        // Secrets, configurations and Gateways are unchanged.
        unserved: _,
        merged: _,
        retained: _,
        last_good: _,
        served_together: _,
        last_parameters: _,
        layers_unknown: _,
        kept_layers: _,
        unless_published: _,
        ocg_bundles: _,
        certificate_requests: _,
        settings: _,
        services: _,
        uncovered: _,
    } = now;
    let Statuses {
        gateway_classes,
        gateways: gateway_statuses,
        listener_sets,
        routes,
        policies,
    } = statuses;
    let before = old.statuses;
    if gateway_classes != before.gateway_classes
        || gateway_statuses != before.gateways
        || listener_sets != before.listener_sets
        || policies != before.policies
        || !routes.keys().eq(before.routes.keys())
        || gateways.len() != old.gateways.len()
        || problems != old.problems
        || hidden_now != hidden_old
    {
        return None;
    }
    let mut delta = RouteDelta::default();
    for (old, now) in old.gateways.into_iter().zip(gateways) {
        let (gateway, differences) = differences_of(old, now, known, sets_of)?;
        if !differences.is_empty() {
            delta.gateways.push((gateway, differences));
        }
    }
    delta.statuses = status_changes(changed, before.routes, routes)?;
    Some(delta)
}

/// Returns `None` if an unchanged route's status differs, because neighbors may be missing.
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

fn differences_of(
    before: ResolvedGateway,
    now: ResolvedGateway,
    known: &KnownServices,
    sets_of: SetsOfServices<'_>,
) -> Option<(NamespacedName, GatewayDelta)> {
    let split = |resolved: ResolvedGateway| {
        let ResolvedGateway {
            gateway,
            mut snapshot,
            keys,
        } = resolved;
        let tables = std::mem::take(&mut snapshot.route_tables);
        let upstreams = Upstreams {
            backends: std::mem::take(&mut snapshot.backends),
            endpoints: std::mem::take(&mut snapshot.endpoints),
        };
        let rest: (NamespacedName, Snapshot, Vec<_>) = (gateway, snapshot, keys);
        (rest, tables, upstreams)
    };
    let (before, old_tables, old) = split(before);
    let (now, new_tables, new) = split(now);
    if before != now {
        return None;
    }
    let route_tables = RouteTableDelta::between(old_tables, new_tables)?;
    // A match that is reachable in the reduced world may be unreachable in the whole world.
    let names = |version: fn(&ChangedHost) -> &VirtualHost| {
        let (mut reached, mut with_sessions) = (BTreeSet::new(), BTreeSet::new());
        for host in route_tables.hosts().iter().map(version) {
            tables::backends_of(host, &mut reached);
            tables::session_backends_of(host, &mut with_sessions);
        }
        (reached, with_sessions)
    };
    let (reached_before, sessions_before) = names(|host| &host.before);
    let (reached_now, sessions_now) = names(|host| &host.after);
    let is_known = |name: &&str| {
        let either = new.knows(name, known).or_else(|| old.knows(name, known));
        either.unwrap_or_default()
    };
    let mut differ = reached_before.symmetric_difference(&reached_now);
    if sessions_before != sessions_now || !differ.all(is_known) {
        return None;
    }
    let (backends, endpoints) = backends::difference(old, new, known, sets_of)?;
    let delta = GatewayDelta {
        route_tables,
        backends,
        endpoints,
    };
    Some((now.0, delta))
}
