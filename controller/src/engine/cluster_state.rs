//! Tracks the world (all objects that resolution uses), and which objects are still missing.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::schema::EndpointSet;

use super::carried::PublishedSets;
use super::relevant::Relevant;
use crate::serve::Metrics;
use crate::watch::{
    FetchOutcome, Input, PublishedBefore, References, StoredStatus, WatchEvent, WatchedObject,
};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{
    AnyObject, Definitions, Kind, LastGoodKeys, LastParameters, ObjectKey, ServedTogether, World,
};
use sesame_resolver::incremental::{SliceIndex, add_partners, is_incremental, service_of};
use sesame_resolver::{Options, Problem, Resolution, hosts_of};

#[derive(Debug, Default)]
pub(super) struct Effect {
    pub(super) world_changed: bool,
    pub(super) services: Vec<NamespacedName>,
    /// Previous versions of the changed routes.
    pub(super) routes: Vec<AnyObject>,
    pub(super) stored: Vec<(ObjectKey, Option<StoredStatus>)>,
    /// Gateways whose number of live hosts changed.
    pub(super) fleets: Vec<NamespacedName>,
}

impl Effect {
    pub(super) fn is_resolved(&self) -> bool {
        self.world_changed || !self.routes.is_empty()
    }

    pub(super) fn world() -> Self {
        Self {
            world_changed: true,
            ..Self::default()
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ClusterState {
    world: World,
    slices: SliceIndex,
    /// Undecodable objects, with errors. The world keeps their last good version.
    broken: BTreeMap<ObjectKey, String>,
    listed: BTreeSet<Kind>,
    published_before: BTreeSet<NamespacedName>,
    published_sets: PublishedSets,
    remembers: bool,
    /// True until the number of live hosts is known. Until then, hosts keep the published number.
    awaits_hosts: bool,
    resolved: bool,
    /// Computed on first use. Ignores routes that changed since the last resolution, because they
    /// are resolved anyway.
    relevant: OnceCell<Relevant>,
    referred: BTreeMap<ObjectKey, Reference>,
    requests: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reference {
    request: u64,
    read: bool,
}

impl ClusterState {
    pub(super) fn awaiting_hosts() -> Self {
        Self {
            awaits_hosts: true,
            ..Self::default()
        }
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn is_listed(&self) -> bool {
        if self.world.definitions == Definitions::OwnTypes {
            return false;
        }
        let read_singly = |kind: &Kind| matches!(kind, Kind::Secret | Kind::ConfigMap);
        Kind::ALL
            .iter()
            .all(|kind| read_singly(kind) || self.listed.contains(kind))
    }

    /// Returns true if the world is complete and the previous publications have been read.
    pub(super) fn is_whole(&self) -> bool {
        self.remembers
            && !self.awaits_hosts
            && self.is_listed()
            && self.referred.values().all(|it| it.read)
    }

    pub(super) fn broken(&self, kind: Kind) -> impl Iterator<Item = &ObjectKey> {
        self.broken.keys().filter(move |key| key.kind == kind)
    }

    /// A Gateway that cannot be decoded takes precedence over listeners in the configuration, and
    /// keeps its publication.
    pub(super) fn withhold_undecodable(&self, resolution: &mut Resolution) {
        let unknown = self.broken(Kind::Gateway);
        for key in unknown.filter(|key| !self.world.contains(key)) {
            resolution.gateways.retain(|it| it.gateway != key.name);
            resolution.statuses.gateways.remove(&key.name);
        }
    }

    pub(super) fn broken_count(&self) -> usize {
        self.broken.len()
    }

    /// Stores the last good keys and the ports of merged Gateways.
    pub(super) fn keep(&mut self, keys: LastGoodKeys, together: ServedTogether) {
        self.world.last_good.replace(keys);
        self.world.served_together = together;
    }

    pub(super) fn keep_parameters(&mut self, parameters: LastParameters) {
        self.world.last_parameters = parameters;
    }

    /// Keeps an earlier process's publications if their Ingresses are unknown.
    pub(super) fn withhold_unknown(&self, resolution: &mut Resolution) {
        let unknown = &resolution.unless_published;
        let is_kept =
            |name: &NamespacedName| unknown.contains(name) && self.published_before.contains(name);
        resolution.gateways.retain(|it| !is_kept(&it.gateway));
    }

    /// Gateways that an earlier process published and whose objects were not deleted since.
    pub(super) fn take_published_sets(&mut self) -> PublishedSets {
        std::mem::take(&mut self.published_sets)
    }

    pub(super) fn published_before(&self) -> impl Iterator<Item = &NamespacedName> {
        self.published_before.iter()
    }

    pub(super) fn record_resolved(&mut self) {
        self.resolved = true;
        self.relevant = OnceCell::new();
    }

    /// Returns the new references if `wanted` differs from the current set.
    pub(super) fn refer_to(&mut self, wanted: &BTreeSet<ObjectKey>) -> Option<References> {
        if self.referred.keys().eq(wanted) {
            return None;
        }
        let gone: Vec<ObjectKey> = self
            .referred
            .keys()
            .filter(|key| !wanted.contains(*key))
            .cloned()
            .collect();
        for key in gone {
            self.referred.remove(&key);
            self.world.remove(&key);
            if key.kind == Kind::Secret {
                self.world.last_good.set_unread(&key.name, false);
            }
        }
        self.requests += 1;
        let new = Reference {
            request: self.requests,
            read: false,
        };
        for key in wanted {
            self.referred.entry(key.clone()).or_insert(new);
        }
        let all = self.referred.iter();
        Some(Arc::new(
            all.map(|(key, it)| (key.clone(), it.request)).collect(),
        ))
    }

    pub(super) fn apply(&mut self, input: Input, metrics: &Metrics) -> Effect {
        let mut effect = Effect::default();
        match input {
            Input::Published(PublishedBefore {
                names,
                keys,
                together,
                endpoint_sets,
            }) => {
                self.published_before = names;
                self.published_sets = endpoint_sets;
                self.keep(keys, together);
                self.remembers = true;
                effect.world_changed = true;
            }
            Input::Defined(definitions) => {
                effect.world_changed |= self.world.definitions != definitions;
                self.world.definitions = definitions;
            }
            Input::LiveHosts(mut hosts) => {
                effect.world_changed |= std::mem::take(&mut self.awaits_hosts);
                // If no host reports, hosts may still serve, so none of them gets the whole limit.
                for (name, last) in &self.world.live_hosts {
                    let now = hosts.entry(name.clone()).or_default();
                    if *now == 0 {
                        *now = *last;
                    }
                }
                let before = std::mem::replace(&mut self.world.live_hosts, hosts);
                let now = &self.world.live_hosts;
                let names = before.keys().chain(now.keys());
                let changed = names.filter(|name| before.get(*name) != now.get(*name));
                effect.fleets.extend(changed.cloned());
                // A condition reports an unknown number.
                let is_known = |hosts: Option<&u32>| hosts.is_some_and(|hosts| *hosts > 0);
                let mut fleets = effect.fleets.iter();
                let is_new = fleets.any(|it| !is_known(before.get(it)) && is_known(now.get(it)));
                effect.world_changed |= is_new && limits_fleets(&self.world);
            }
            Input::Configured => {}
            Input::Fetched { key, answer } => {
                // Drop responses for objects that are no longer referenced.
                if let Some(reference) = self.referred.get_mut(&key) {
                    effect.world_changed |= !std::mem::replace(&mut reference.read, true);
                    if key.kind == Kind::Secret {
                        let unread = matches!(answer, FetchOutcome::Unreadable);
                        self.world.last_good.set_unread(&key.name, unread);
                    }
                    match answer {
                        FetchOutcome::Found(object) => {
                            self.replace(&key, Some(object), &mut effect);
                        }
                        FetchOutcome::Missing => self.replace(&key, None, &mut effect),
                        FetchOutcome::Unreadable => {}
                    }
                }
            }
            Input::Watched {
                kind,
                event,
                seen: _,
            } => match event {
                WatchEvent::Listed(objects) => {
                    self.apply_list(kind, objects, &mut effect);
                    metrics.listed(kind.as_str());
                }
                WatchEvent::Applied(observed) => self.apply_object(kind, observed, &mut effect),
                WatchEvent::Deleted(observed) => {
                    let key = ObjectKey {
                        kind,
                        name: observed.name,
                    };
                    self.forget(key, observed.stored.is_some(), &mut effect);
                }
            },
        }
        effect
    }

    fn apply_list(&mut self, kind: Kind, objects: Vec<WatchedObject>, effect: &mut Effect) {
        let there: BTreeSet<&NamespacedName> = objects.iter().map(|object| &object.name).collect();
        let broken = self.broken.keys().filter(|key| key.kind == kind).cloned();
        let known = self
            .world
            .names(kind)
            .into_iter()
            .map(|name| ObjectKey { kind, name });
        let gone: BTreeSet<ObjectKey> = known
            .chain(broken)
            .filter(|key| !there.contains(&key.name))
            .collect();
        for key in gone {
            self.forget(key, StoredStatus::applies_to(kind), effect);
        }
        for object in objects {
            self.apply_object(kind, object, effect);
        }
        effect.world_changed |= self.listed.insert(kind);
    }

    fn apply_object(&mut self, kind: Kind, observed: WatchedObject, effect: &mut Effect) {
        let WatchedObject {
            name,
            object,
            stored,
        } = observed;
        let key = ObjectKey { kind, name };
        if let Some(stored) = stored {
            effect.stored.push((key.clone(), Some(stored)));
        }
        match object {
            Ok(object) => {
                effect.world_changed |= self.broken.remove(&key).is_some();
                self.replace(&key, Some(object), effect);
            }
            Err(why) => {
                if self.broken.get(&key) != Some(&why) {
                    let kept = self.world.contains(&key);
                    tracing::warn!(object = %key, %why, kept_last_good = kept, "cannot decode an object; skipping it");
                    self.broken.insert(key, why);
                    effect.world_changed = true;
                }
            }
        }
    }

    fn forget(&mut self, key: ObjectKey, has_status: bool, effect: &mut Effect) {
        effect.world_changed |= self.broken.remove(&key).is_some();
        if key.kind == Kind::Gateway {
            self.published_before.remove(&key.name);
        }
        self.replace(&key, None, effect);
        if has_status {
            effect.stored.push((key, None));
        }
    }

    fn replace(&mut self, key: &ObjectKey, object: Option<AnyObject>, effect: &mut Effect) {
        let before = self.world.get(key);
        // Ignore an object whose metadata contains another name: it would be stored under that name
        // and could never be removed.
        if before == object || object.as_ref().is_some_and(|object| object.key() != *key) {
            return;
        }
        let mut versions = before.iter().chain(&object);
        match key.kind {
            Kind::EndpointSlice if self.resolved => {
                effect.services.extend(versions.filter_map(service_of));
            }
            Kind::Service | Kind::Pod if self.resolved => {
                let relevant = self.relevant.get_or_init(|| Relevant::of(&self.world));
                effect.world_changed |= versions.any(|object| relevant.holds(object));
            }
            kind if self.resolved && is_incremental(kind) && versions.count() == 2 => {
                effect.routes.extend(before.clone());
            }
            _ => effect.world_changed = true,
        }
        if let Some(service) = before.as_ref().and_then(service_of) {
            self.slices.remove(&service, &key.name.name);
        }
        if let Some(service) = object.as_ref().and_then(service_of) {
            self.slices.insert(service, &key.name.name);
        }
        match object {
            Some(object) => self.world.insert(object),
            None => {
                self.world.remove(key);
            }
        }
    }

    /// Must return the same endpoints as a full resolution.
    pub(super) fn endpoint_sets(
        &self,
        services: &BTreeSet<NamespacedName>,
        fleets: &BTreeSet<NamespacedName>,
        options: &Options,
    ) -> Vec<EndpointSet> {
        let mut services = services.clone();
        add_partners(&self.world, &mut services);
        let (mut sets, problems) = self.sets_of(&services, options);
        for problem in &problems {
            tracing::debug!(object = %problem.object, "{}", problem.message);
        }
        sets.extend(fleets.iter().map(|name| hosts_of(name, &self.world)));
        sets
    }

    pub(super) fn sets_of(
        &self,
        services: &BTreeSet<NamespacedName>,
        options: &Options,
    ) -> (Vec<EndpointSet>, Vec<Problem>) {
        self.slices.endpoint_sets(services, &self.world, options)
    }
}

fn limits_fleets(world: &World) -> bool {
    world.traffic_policies.iter().any(|policy| {
        let mut limits = policy.spec.rate_limits.iter();
        limits.any(|limit| limit.scope.is_some())
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::watch::newly_requested;
    use sesame_kinds::decode::{self, DecodeLimits};

    pub(in crate::engine) fn watched(kind: Kind, event: WatchEvent<WatchedObject>) -> Input {
        let seen = std::time::SystemTime::UNIX_EPOCH;
        Input::Watched { kind, event, seen }
    }

    pub(in crate::engine) fn observed(yaml: &str) -> WatchedObject {
        let mut decoded = decode::decode(yaml, &DecodeLimits::default());
        let object = decoded
            .pop()
            .expect("a document")
            .expect("an object")
            .object;
        WatchedObject {
            name: object.metadata().key(),
            object: Ok(object),
            stored: None,
        }
    }

    fn route(name: &str, service: &str) -> WatchedObject {
        observed(&format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: {name}}}, \
             spec: {{rules: [{{backendRefs: [{{name: {service}, port: 80}}]}}]}}}}"
        ))
    }

    fn slice_of(name: &str, service: &str) -> WatchedObject {
        observed(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}, \
             labels: {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, \
             endpoints: [{{addresses: [10.0.0.1]}}], ports: []}}"
        ))
    }

    fn slice(service: &str) -> WatchedObject {
        slice_of(&format!("{service}-1"), service)
    }

    fn apply(state: &mut ClusterState, kind: Kind, event: WatchEvent<WatchedObject>) -> bool {
        let effect = state.apply(watched(kind, event), &Metrics::new());
        effect.world_changed
    }

    fn services(state: &mut ClusterState, event: WatchEvent<WatchedObject>) -> Vec<String> {
        let kind = Kind::EndpointSlice;
        let effect = state.apply(watched(kind, event), &Metrics::new());
        assert!(!effect.world_changed);
        effect.services.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn broken_object_keeps_last_good_until_deleted() {
        let mut state = ClusterState::default();
        let broken = || WatchedObject {
            object: Err("a number is too large".to_owned()),
            ..route("a", "app")
        };
        let all = vec![route("a", "app"), route("b", "app")];
        assert!(apply(&mut state, Kind::HttpRoute, WatchEvent::Listed(all)));
        assert!(apply(
            &mut state,
            Kind::HttpRoute,
            WatchEvent::Applied(broken())
        ));
        assert_eq!((state.world().len(), state.broken_count()), (2, 1));
        // The new list still contains the undecodable route; the other route was deleted.
        assert!(apply(
            &mut state,
            Kind::HttpRoute,
            WatchEvent::Listed(vec![broken()])
        ));
        assert_eq!((state.world().len(), state.broken_count()), (1, 1));
        assert!(apply(
            &mut state,
            Kind::HttpRoute,
            WatchEvent::Deleted(broken())
        ));
        assert_eq!((state.world().len(), state.broken_count()), (0, 0));
    }

    #[test]
    fn world_is_complete_once_references_are_read() {
        let mut state = ClusterState::default();
        for kind in Kind::ALL {
            assert!(!state.is_listed(), "{kind}");
            apply(&mut state, *kind, WatchEvent::Listed(Vec::new()));
            if *kind == Kind::BackendTlsPolicy {
                assert!(
                    !state.is_listed(),
                    "Services, EndpointSlices and Namespaces are still missing"
                );
            }
            if *kind == Kind::EndpointSlice {
                break;
            }
        }
        for kind in [
            Kind::Pod,
            Kind::ClusterTrustBundle,
            Kind::Namespace,
            Kind::RouteFilter,
            Kind::SesameConfiguration,
        ] {
            apply(&mut state, kind, WatchEvent::Listed(Vec::new()));
        }
        assert!(!state.is_listed(), "the definitions have not been read yet");
        let definitions = Definitions::Installed(BTreeMap::new());
        state.apply(Input::Defined(definitions), &Metrics::new());
        assert!(
            !state.is_whole(),
            "the previous publications have not been read yet"
        );
        let published = Input::Published(PublishedBefore::default());
        assert!(state.apply(published, &Metrics::new()).world_changed);
        assert!(state.is_whole());
        let key = ObjectKey {
            kind: Kind::Secret,
            name: NamespacedName::new("ns", "cert"),
        };
        let first = state.refer_to(&BTreeSet::from([key.clone()])).unwrap();
        assert!(!state.is_whole());
        let fetched = Input::Fetched {
            key: key.clone(),
            answer: FetchOutcome::Missing,
        };
        assert!(state.apply(fetched, &Metrics::new()).world_changed);
        assert!(state.is_whole(), "a missing object counts as read");
        // The fetcher might see only the last set of references.
        assert!(state.refer_to(&BTreeSet::new()).is_some());
        let last = state.refer_to(&BTreeSet::from([key.clone()])).unwrap();
        assert!(!state.is_whole());
        assert_eq!(newly_requested(&first, &last), [key]);
        assert_eq!(newly_requested(&last, &last), []);
    }

    #[test]
    fn endpoints_and_unreferenced_services_do_not_change_world() {
        let mut state = ClusterState::default();
        apply(
            &mut state,
            Kind::HttpRoute,
            WatchEvent::Applied(route("a", "app")),
        );
        state.record_resolved();
        let none: [&str; 0] = [];
        let service = |name: &str, port: u16| {
            WatchEvent::Applied(observed(&format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: {port}}}]}}}}"
            )))
        };
        assert!(!apply(&mut state, Kind::Service, service("lines", 4317)));
        let configuration = observed(
            "{apiVersion: projectsesame.io/v1alpha1, kind: SesameConfiguration, metadata: {name: a}, \
             spec: {accessLog: {sinks: [{backendRef: {name: lines, port: 4317}}]}}}",
        );
        let configuration = WatchEvent::Applied(configuration);
        assert!(apply(&mut state, Kind::SesameConfiguration, configuration));
        state.record_resolved();
        assert!(apply(&mut state, Kind::Service, service("lines", 4318)));
        state.record_resolved();
        assert!(!apply(&mut state, Kind::Service, service("other", 80)));
        assert!(apply(&mut state, Kind::Service, service("app", 80)));
        assert!(apply(&mut state, Kind::Service, service("app", 81)));
        state.record_resolved();
        let changed = services(&mut state, WatchEvent::Applied(slice("other")));
        assert_eq!(changed, ["default/other"]);
        let changed = services(&mut state, WatchEvent::Applied(slice("app")));
        assert_eq!(changed, ["default/app"]);
        assert_eq!(
            services(&mut state, WatchEvent::Applied(slice("app"))),
            none
        );
        // If a route refers to the Service later, resolution uses its current slices.
        assert!(apply(
            &mut state,
            Kind::HttpRoute,
            WatchEvent::Applied(route("b", "other"))
        ));
        assert_eq!(state.world().endpoint_slices.len(), 2);
        state.record_resolved();
        // A slice that moves to another Service changes the endpoints of both Services.
        let changed = services(&mut state, WatchEvent::Applied(slice_of("app-1", "other")));
        assert_eq!(changed, ["default/app", "default/other"]);
        let changed = services(&mut state, WatchEvent::Deleted(slice_of("app-1", "other")));
        assert_eq!(changed, ["default/other"]);
    }
}
