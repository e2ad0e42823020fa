//! Backends for the Services of an ExtensionService, which share requests by weight. Envoy's client
//! of such a service knows only one cluster, so their endpoints are in one set.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema::{Backend, Endpoint, EndpointSet};

use super::backend::distinct_name;
use super::endpoints::service_port;
use super::{BackendEntry, BackendTarget, Backends, Connection, PolicedBackend, ResolvedRef};
use super::{Source, Traffic};
use crate::context::ResolveContext;
use sesame_kinds::api::{ExtensionService, ExtensionTarget, NamespacedName, Service, ServicePort};
use sesame_kinds::status::{Grounds, Reason};
use sesame_kinds::world::{Kind, World};

/// Returns the Services with their weights. As in Contour, all weights are equal if none is set, and
/// a Service without a weight gets no requests otherwise.
pub(crate) fn shares(extension: &ExtensionService) -> Vec<(&ExtensionTarget, u32)> {
    let services = &extension.spec.services;
    let weight = |target: &ExtensionTarget| u32::try_from(target.weight).unwrap_or(0);
    let is_even = services.iter().all(|target| weight(target) == 0);
    let weighted = services.iter().map(|target| {
        let weight = if is_even { 1 } else { weight(target) };
        (target, weight.min(EndpointSet::MAX_WEIGHT))
    });
    let served = weighted.filter(|(_, weight)| *weight > 0);
    served.take(EndpointSet::MAX_WEIGHTS).collect()
}

/// Adds the Services that share an endpoint set with one of `services`.
pub fn add_partners(world: &World, services: &mut BTreeSet<NamespacedName>) {
    if services.is_empty() {
        return;
    }
    let mut partners = BTreeSet::new();
    for extension in &world.extension_services {
        let all = names(extension);
        if all.len() > 1 && !all.is_disjoint(services) {
            partners.extend(all);
        }
    }
    services.append(&mut partners);
}

/// Returns the endpoint sets whose Services are all in `services`.
pub(crate) fn sets<'w>(
    world: &'w World,
    services: &BTreeSet<NamespacedName>,
    mut of_port: impl FnMut(&'w Service, &'w ServicePort) -> EndpointSet,
) -> Vec<EndpointSet> {
    let extensions = world.extension_services.iter().filter(|extension| {
        let all = names(extension);
        shares(extension).len() > 1 && all.is_subset(services)
    });
    let sets = extensions.map(|extension| set(extension, world, &mut of_port));
    sets.collect()
}

fn names(extension: &ExtensionService) -> BTreeSet<NamespacedName> {
    let namespace = &extension.metadata.namespace;
    let targets = shares(extension).into_iter();
    let names = targets.map(|(target, _)| NamespacedName::new(namespace, &target.name));
    names.collect()
}

fn set_name(extension: &ExtensionService) -> String {
    let kind = Kind::ExtensionService;
    kind.named(extension.metadata.key()).to_string()
}

/// If several Services have the same endpoint, the first Service keeps it.
pub(super) fn set<'w>(
    extension: &ExtensionService,
    world: &'w World,
    mut of_port: impl FnMut(&'w Service, &'w ServicePort) -> EndpointSet,
) -> EndpointSet {
    let namespace = &extension.metadata.namespace;
    let mut weights = Vec::new();
    let mut endpoints: BTreeMap<(String, u32), Endpoint> = BTreeMap::new();
    for ((target, weight), group) in shares(extension).into_iter().zip(1..) {
        weights.push(weight);
        let service = world.services.get(namespace, &target.name);
        let port = service.and_then(|it| Some((it, service_port(&it.spec, target.port, "TCP")?)));
        let Some((service, port)) = port else {
            continue;
        };
        for endpoint in of_port(service, port).endpoints {
            let key = (endpoint.address.clone(), endpoint.port);
            endpoints.entry(key).or_insert(Endpoint {
                zone: 0,
                group,
                ..endpoint
            });
        }
    }
    EndpointSet {
        name: set_name(extension),
        endpoints: endpoints.into_values().collect(),
        zones: Vec::new(),
        weights,
    }
}

impl<'w> Backends<'w> {
    /// Returns the name of the Backend for all Services of the ExtensionService. An error follows
    /// the index of its Service.
    pub(crate) fn of_extension(
        &mut self,
        extension: &'w ExtensionService,
        traffic: Traffic,
        connection: &Connection,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<(String, Vec<PolicedBackend<'w>>), (usize, Grounds)> {
        let namespace = extension.metadata.namespace.as_str();
        let (mut policed, mut found) = (Vec::new(), Vec::new());
        // Also check Services without a share.
        for (index, target) in extension.spec.services.iter().enumerate() {
            let service = (namespace, target.name.as_str());
            let ResolvedRef {
                policed: of,
                target,
            } = self.of_service(service, target.port, traffic, connection.clone(), cx);
            policed.extend(of);
            let name = target.and_then(BackendTarget::served);
            found.push(name.map_err(|why| (index, why))?);
        }
        let targets = extension.spec.services.as_slice();
        let shares = shares(extension);
        if let [(only, _)] = shares.as_slice() {
            let place = targets
                .iter()
                .position(|target| std::ptr::eq(target, *only));
            let name = place.and_then(|place| found.get(place));
            return Ok((name.cloned().unwrap_or_default(), policed));
        }
        let name = self.joined(extension, &found)?;
        Ok((name, policed))
    }

    fn joined(
        &mut self,
        extension: &'w ExtensionService,
        names: &[String],
    ) -> Result<String, (usize, Grounds)> {
        let set = set_name(extension);
        let joined = |name: &String| {
            let entry = self.entry(name)?;
            Some(Backend {
                name: String::new(),
                endpoints: set.clone(),
                // Its zones would compete with the weights.
                zone_preference: None,
                weighted: true,
                ..entry.backend.clone()
            })
        };
        let mut all = names.iter().map(joined).enumerate();
        let Some((_, Some(mut backend))) = all.next() else {
            return Err((0, (Reason::Invalid, "it has no backend".to_owned())));
        };
        for (index, other) in all {
            if other.as_ref() != Some(&backend) {
                let why = "protocol, TLS settings and policies must be the same as for services[0]";
                return Err((index, (Reason::Invalid, why.to_owned())));
            }
        }
        backend.name = distinct_name(&set, &backend);
        let name = backend.name.clone();
        let source = Source::Extension(extension);
        self.add(BackendEntry { backend, source });
        Ok(name)
    }
}
