//! Finds the Backends that are added or removed when routes and Services change.
//!
//! A Backend exists as long as a reachable match sends requests to it, but incremental resolution
//! knows only some of the matches. All routes that use an affected Service therefore count as
//! changed. For other Services, this module must never report that a Backend was added or removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::delta::{BackendDelta, EndpointDelta};
use sesame_proto::schema::{Backend, EndpointSet};

use super::routes::{MAX_CHANGED, PreviousRoutes, is_incremental};
use crate::Problem;
use sesame_kinds::api::{NamespacedName, Service};
use sesame_kinds::world::references::{self, ServiceReference};
use sesame_kinds::world::{Kind, ObjectKey, World};

/// Previous versions of changed Services. `None` if the Service did not exist.
pub type PreviousServices = BTreeMap<NamespacedName, Option<Arc<Service>>>;

/// Services that are used only by routes that count as changed.
pub(super) type KnownServices = BTreeSet<NamespacedName>;

/// Returns the endpoint sets of Services, and the problems found in their EndpointSlices.
pub type SetsOfServices<'a> =
    &'a dyn Fn(&BTreeSet<NamespacedName>) -> (Vec<EndpointSet>, Vec<Problem>);

/// Adds unchanged routes if they use a Service that changed, or that a changed route started or
/// stopped using. Returns the Services whose users are now all in `routes`.
pub(super) fn add_users(
    world: &World,
    services: &PreviousServices,
    routes: &mut PreviousRoutes,
) -> KnownServices {
    let mut changed: BTreeSet<NamespacedName> = services.keys().cloned().collect();
    for (key, before) in routes.iter() {
        let now = world.get(key);
        let (mut old, mut new) = (BTreeSet::new(), BTreeSet::new());
        references::of(before, |reference| {
            old.insert(reference);
        });
        if let Some(now) = &now {
            references::of(now, |reference| {
                new.insert(reference);
            });
        }
        let differ = old.symmetric_difference(&new);
        let name = |it: &ServiceReference<'_>| NamespacedName::new(it.namespace, it.name);
        changed.extend(differ.map(name));
    }
    let mut known = KnownServices::new();
    for (service, users) in users(world, &changed) {
        let others: Vec<ObjectKey> = users
            .into_iter()
            .filter(|user| !routes.contains_key(user))
            .collect();
        if routes.len() + others.len() > MAX_CHANGED {
            continue;
        }
        for user in others {
            if let Some(route) = world.get(&user) {
                routes.insert(user, route);
            }
        }
        known.insert(service);
    }
    known
}

/// Omits a Service if objects other than HTTPRoutes and GRPCRoutes also use it.
fn users(
    world: &World,
    services: &BTreeSet<NamespacedName>,
) -> BTreeMap<NamespacedName, BTreeSet<ObjectKey>> {
    if services.is_empty() {
        return BTreeMap::new();
    }
    let all = services.iter();
    let mut users: BTreeMap<(&str, &str), Option<BTreeSet<ObjectKey>>> = all
        .map(|it| {
            (
                (it.namespace.as_str(), it.name.as_str()),
                Some(BTreeSet::new()),
            )
        })
        .collect();
    references::each(world, |route, reference| {
        let Some(users) = users.get_mut(&(reference.namespace, reference.name)) else {
            return;
        };
        match route {
            Some(route) if is_incremental(route.0) => {
                if let Some(users) = users
                    && users.len() <= MAX_CHANGED
                {
                    users.insert(references::key_of(route));
                }
            }
            _ => *users = None,
        }
    });
    let known = users.into_iter().filter_map(|((namespace, name), users)| {
        Some((NamespacedName::new(namespace, name), users?))
    });
    known.collect()
}

#[derive(Debug)]
pub(super) struct Upstreams {
    pub(super) backends: Vec<Backend>,
    pub(super) endpoints: Vec<EndpointSet>,
}

impl Upstreams {
    /// Returns true if adding or removing the Backend has the same effect in the whole world.
    /// Returns `None` if `self` has no such Backend.
    pub(super) fn knows(&self, name: &str, known: &KnownServices) -> Option<bool> {
        let place = self
            .backends
            .binary_search_by(|it| it.name.as_str().cmp(name));
        let backend = self.backends.get(place.ok()?)?;
        Some(service_of(backend).is_some_and(|service| known.contains(&service)))
    }
}

/// Returns `None` if only a full resolution can determine the differences.
pub(super) fn difference(
    before: Upstreams,
    after: Upstreams,
    known: &KnownServices,
    sets_of: SetsOfServices<'_>,
) -> Option<(BackendDelta, EndpointDelta)> {
    let mut services = BTreeSet::new();
    let mut changes = |backend: &Backend| {
        // Objects outside the reduced world may use the same TLS settings and session keys.
        let is_plain = backend.tls.is_none() && backend.session_key.is_empty();
        let service = service_of(backend).filter(|service| is_plain && known.contains(service))?;
        services.insert(service);
        Some(())
    };
    let mut delta = BackendDelta::default();
    let old = before.backends.into_iter();
    let mut old: BTreeMap<String, Backend> = old.map(|it| (it.name.clone(), it)).collect();
    for backend in after.backends {
        match old.remove(&backend.name) {
            Some(before) if before == backend => {}
            Some(_) => return None,
            None => {
                changes(&backend)?;
                delta.added.push(backend);
            }
        }
    }
    for (name, backend) in old {
        changes(&backend)?;
        delta.removed.push(name);
    }
    if delta.is_empty() {
        return Some((delta, EndpointDelta::default()));
    }
    let names = |sets: Vec<EndpointSet>| sets.into_iter().map(|set| set.name);
    let old: BTreeSet<String> = names(before.endpoints).collect();
    let new: BTreeSet<String> = names(after.endpoints).collect();
    let (sets, problems) = sets_of(&services);
    let is_added = |set: &EndpointSet| new.contains(&set.name) && !old.contains(&set.name);
    let endpoints = EndpointDelta {
        added: sets.into_iter().filter(is_added).collect(),
        removed: old.difference(&new).cloned().collect(),
    };
    let complete = endpoints.added.len() == new.difference(&old).count();
    // The problems depend on the ports that all routes use, so leave them to a full resolution.
    (complete && problems.is_empty()).then_some((delta, endpoints))
}

/// Returns `None` if the Backend has no Service or can never have endpoints.
fn service_of(backend: &Backend) -> Option<NamespacedName> {
    let mut parts = backend.endpoints.split('/');
    let is_service = parts.next()? == Kind::Service.as_str();
    let (namespace, name) = (parts.next()?, parts.next()?);
    is_service.then(|| NamespacedName::new(namespace, name))
}
