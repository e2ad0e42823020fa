//! What is known of the cluster: the world, and what is still missing of it.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema::EndpointSet;

use super::Input;
use super::relevant::Relevant;
use crate::report::Stored;
use crate::serve::Metrics;
use crate::watch::Seen;
use crate::watch::fetch::Answer;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::Options;
use sesame_gateway_api::resolve::incremental::{SliceIndex, is_incremental, service_of};
use sesame_gateway_api::world::{AnyObject, Kind, LastGoodKeys, ObjectKey, World};

/// An object that a watch saw.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) name: NamespacedName,
    /// The object, or why it is not one.
    pub(crate) object: Result<AnyObject, String>,
    /// Its status, if it is of a kind whose status we write.
    pub(crate) stored: Option<Stored>,
}

/// What an input did.
#[derive(Debug, Default)]
pub(super) struct Effect {
    /// Whether resolution may say something else now.
    pub(super) world_changed: bool,
    /// Services of which it may say other endpoints, and nothing else.
    pub(super) services: Vec<NamespacedName>,
    /// Routes that are others now, as they were.
    pub(super) routes: Vec<AnyObject>,
    /// Statuses as they are stored now.
    pub(super) stored: Vec<(ObjectKey, Option<Stored>)>,
}

impl Effect {
    /// Something that only a whole resolution tells.
    pub(super) fn world() -> Self {
        Self {
            world_changed: true,
            ..Self::default()
        }
    }
}

/// The world and what is missing of it.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    world: World,
    slices: SliceIndex,
    /// Objects that cannot be decoded. Where there was a good version before, the world still has it.
    broken: BTreeMap<ObjectKey, String>,
    /// Kinds that were listed at least once.
    listed: BTreeSet<Kind>,
    /// Whether it was resolved once.
    resolved: bool,
    /// What the last resolution could look at, once somebody asks. Routes that have changed since are resolved anyway.
    relevant: OnceCell<Relevant>,
    /// Secrets and ConfigMaps that are referred to, and whether they were read.
    referred: BTreeMap<ObjectKey, bool>,
}

impl ClusterState {
    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// Whether every kind was listed once.
    pub(super) fn is_listed(&self) -> bool {
        let read_singly = |kind: &Kind| matches!(kind, Kind::Secret | Kind::ConfigMap);
        Kind::ALL
            .iter()
            .all(|kind| read_singly(kind) || self.listed.contains(kind))
    }

    /// Whether nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.is_listed() && self.referred.values().all(|read| *read)
    }

    /// The objects of a kind that are there and cannot be decoded.
    pub(super) fn broken(&self, kind: Kind) -> impl Iterator<Item = &ObjectKey> {
        self.broken.keys().filter(move |key| key.kind == kind)
    }

    pub(super) fn broken_count(&self) -> usize {
        self.broken.len()
    }

    /// Takes what a resolution found good, for the next one.
    pub(super) fn keep(&mut self, last_good: LastGoodKeys) {
        self.world.last_good.replace(last_good);
    }

    /// Takes note that the world was resolved as it is.
    pub(super) fn note_resolved(&mut self) {
        self.resolved = true;
        self.relevant = OnceCell::new();
    }

    /// Takes what is referred to now; says whether that is something else than before.
    pub(super) fn refer_to(&mut self, wanted: &BTreeSet<ObjectKey>) -> bool {
        if self.referred.keys().eq(wanted) {
            return false;
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
        for key in wanted {
            self.referred.entry(key.clone()).or_insert(false);
        }
        true
    }

    /// Takes what arrived.
    pub(super) fn take(&mut self, input: Input, metrics: &Metrics) -> Effect {
        let mut effect = Effect::default();
        match input {
            Input::Published(last_good) => {
                self.world.last_good.replace(last_good);
                effect.world_changed = true;
            }
            Input::Fetched { key, answer } => {
                // An answer to a question of earlier is no longer wanted.
                if let Some(read) = self.referred.get_mut(&key) {
                    effect.world_changed |= !std::mem::replace(read, true);
                    if key.kind == Kind::Secret {
                        let unread = matches!(answer, Answer::Unreadable);
                        self.world.last_good.set_unread(&key.name, unread);
                    }
                    match answer {
                        Answer::Found(object) => self.replace(&key, Some(object), &mut effect),
                        Answer::Missing => self.replace(&key, None, &mut effect),
                        Answer::Unreadable => {}
                    }
                }
            }
            Input::Seen { kind, seen } => match seen {
                Seen::All(objects) => {
                    self.take_all(kind, objects, &mut effect);
                    metrics.listed(kind.as_str());
                }
                Seen::One(observed) => self.take_one(kind, observed, &mut effect),
                Seen::Gone(observed) => {
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

    fn take_all(&mut self, kind: Kind, objects: Vec<Observed>, effect: &mut Effect) {
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
            self.forget(key, Stored::is_of(kind), effect);
        }
        for object in objects {
            self.take_one(kind, object, effect);
        }
        effect.world_changed |= self.listed.insert(kind);
    }

    fn take_one(&mut self, kind: Kind, observed: Observed, effect: &mut Effect) {
        let Observed {
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
                    tracing::warn!(object = %key, %why, kept_last_good = kept, "an object cannot be read and is skipped");
                    self.broken.insert(key, why);
                    effect.world_changed = true;
                }
            }
        }
    }

    fn forget(&mut self, key: ObjectKey, has_status: bool, effect: &mut Effect) {
        effect.world_changed |= self.broken.remove(&key).is_some();
        self.replace(&key, None, effect);
        if has_status {
            effect.stored.push((key, None));
        }
    }

    /// Puts the object, or nothing, where the key is; notes what resolution may say otherwise then.
    fn replace(&mut self, key: &ObjectKey, object: Option<AnyObject>, effect: &mut Effect) {
        let before = self.world.get(key);
        // What is kept is found by its own name: an object of another would stay for ever.
        if before == object || object.as_ref().is_some_and(|object| object.key() != *key) {
            return;
        }
        let mut versions = before.iter().chain(&object);
        match key.kind {
            Kind::EndpointSlice if self.resolved => {
                effect.services.extend(versions.filter_map(service_of));
            }
            Kind::Service if self.resolved => {
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

    /// The endpoint sets of these Services, as the whole world would be resolved to.
    pub(super) fn endpoint_sets(
        &self,
        services: &BTreeSet<NamespacedName>,
        options: &Options,
    ) -> Vec<EndpointSet> {
        let (sets, problems) = self.slices.endpoint_sets(services, &self.world, options);
        for problem in &problems {
            tracing::debug!(object = %problem.object, "{}", problem.message);
        }
        sets
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use sesame_gateway_api::decode::{self, Limits};

    pub(in crate::engine) fn observed(yaml: &str) -> Observed {
        let mut decoded = decode::decode(yaml, &Limits::default());
        let object = decoded
            .pop()
            .expect("a document")
            .expect("an object")
            .object;
        Observed {
            name: object.metadata().key(),
            object: Ok(object),
            stored: None,
        }
    }

    fn route(name: &str, service: &str) -> Observed {
        observed(&format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: {name}}}, \
             spec: {{rules: [{{backendRefs: [{{name: {service}, port: 80}}]}}]}}}}"
        ))
    }

    fn slice_of(name: &str, service: &str) -> Observed {
        observed(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}, \
             labels: {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, \
             endpoints: [{{addresses: [10.0.0.1]}}], ports: []}}"
        ))
    }

    fn slice(service: &str) -> Observed {
        slice_of(&format!("{service}-1"), service)
    }

    fn take(state: &mut ClusterState, kind: Kind, seen: Seen<Observed>) -> bool {
        let effect = state.take(Input::Seen { kind, seen }, &Metrics::new());
        effect.world_changed
    }

    /// The Services whose endpoints change, if nothing else does.
    fn services(state: &mut ClusterState, seen: Seen<Observed>) -> Vec<String> {
        let kind = Kind::EndpointSlice;
        let effect = state.take(Input::Seen { kind, seen }, &Metrics::new());
        assert!(!effect.world_changed);
        effect.services.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_broken_object_keeps_its_last_good_version_until_it_is_gone() {
        let mut state = ClusterState::default();
        let broken = || Observed {
            object: Err("a number is too large".to_owned()),
            ..route("a", "app")
        };
        let all = vec![route("a", "app"), route("b", "app")];
        assert!(take(&mut state, Kind::HttpRoute, Seen::All(all)));
        assert!(take(&mut state, Kind::HttpRoute, Seen::One(broken())));
        assert_eq!((state.world().len(), state.broken_count()), (2, 1));
        // Listed again, it is still there and still broken; the other is gone.
        assert!(take(&mut state, Kind::HttpRoute, Seen::All(vec![broken()])));
        assert_eq!((state.world().len(), state.broken_count()), (1, 1));
        assert!(take(&mut state, Kind::HttpRoute, Seen::Gone(broken())));
        assert_eq!((state.world().len(), state.broken_count()), (0, 0));
    }

    #[test]
    fn a_world_is_whole_when_all_is_listed_and_what_it_refers_to_is_read() {
        let mut state = ClusterState::default();
        for kind in Kind::ALL {
            assert!(!state.is_listed(), "{kind}");
            take(&mut state, *kind, Seen::All(Vec::new()));
            if *kind == Kind::BackendTlsPolicy {
                assert!(
                    !state.is_listed(),
                    "Services, slices and namespaces are not there yet"
                );
            }
            if *kind == Kind::EndpointSlice {
                break;
            }
        }
        take(&mut state, Kind::Namespace, Seen::All(Vec::new()));
        assert!(state.is_whole());
        let key = ObjectKey {
            kind: Kind::Secret,
            name: NamespacedName::new("ns", "cert"),
        };
        assert!(state.refer_to(&BTreeSet::from([key.clone()])));
        assert!(!state.is_whole());
        let fetched = Input::Fetched {
            key,
            answer: Answer::Missing,
        };
        assert!(state.take(fetched, &Metrics::new()).world_changed);
        assert!(state.is_whole(), "that there is none is an answer too");
    }

    #[test]
    fn endpoints_change_nothing_else_and_services_that_nobody_refers_to_nothing() {
        let mut state = ClusterState::default();
        take(&mut state, Kind::HttpRoute, Seen::One(route("a", "app")));
        state.note_resolved();
        let none: [&str; 0] = [];
        let service = |name: &str, port: u16| {
            Seen::One(observed(&format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: {port}}}]}}}}"
            )))
        };
        assert!(!take(&mut state, Kind::Service, service("other", 80)));
        assert!(take(&mut state, Kind::Service, service("app", 80)));
        assert!(take(&mut state, Kind::Service, service("app", 81)));
        state.note_resolved();
        let changed = services(&mut state, Seen::One(slice("other")));
        assert_eq!(changed, ["default/other"]);
        let changed = services(&mut state, Seen::One(slice("app")));
        assert_eq!(changed, ["default/app"]);
        assert_eq!(services(&mut state, Seen::One(slice("app"))), none);
        // A route that refers to it later finds what was learned meanwhile.
        assert!(take(
            &mut state,
            Kind::HttpRoute,
            Seen::One(route("b", "other"))
        ));
        assert_eq!(state.world().endpoint_slices.len(), 2);
        state.note_resolved();
        // A slice that goes over to another Service is a change of both.
        let changed = services(&mut state, Seen::One(slice_of("app-1", "other")));
        assert_eq!(changed, ["default/app", "default/other"]);
        let changed = services(&mut state, Seen::Gone(slice_of("app-1", "other")));
        assert_eq!(changed, ["default/other"]);
    }
}
