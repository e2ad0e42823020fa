//! Indexes of the input, so that the time for a policy does not depend on the number of others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::draft::{Draft, ObjectId};
use super::super::stops::parents;
use super::{GROUP, credentials, group, references};

/// Kind and namespace of policies, and kind and name of a target.
type TargetKey = [String; 4];

#[derive(Debug, Default)]
pub(in super::super) struct InputIndex {
    /// Policies by target, each with the target's section.
    targeting: BTreeMap<TargetKey, Vec<(ObjectId, String)>>,
    /// Policies that select targets by labels, by kind and namespace.
    selecting: BTreeMap<(String, String), Vec<ObjectId>>,
    /// Policies for whole Gateways, by kind.
    broad: BTreeMap<String, Vec<ObjectId>>,
    /// ListenerSets and routes, by parent.
    children: BTreeMap<ObjectId, BTreeSet<ObjectId>>,
    /// Objects that refer to an object of Envoy Gateway.
    referring: BTreeMap<ObjectId, BTreeSet<ObjectId>>,
    /// Routes by backend, as namespace and name.
    routes: BTreeMap<(String, String), BTreeSet<ObjectId>>,
    /// Headers that checks set.
    pub(super) check_headers: BTreeSet<String>,
}

impl InputIndex {
    pub(in super::super) fn of(draft: &Draft) -> Self {
        let mut index = Self {
            check_headers: credentials::headers_of_checks(draft),
            ..Self::default()
        };
        for (id, object) in draft.borrowed_inputs() {
            if group(object).starts_with(GROUP) {
                index.add_policy(id, &object["spec"]);
            }
            if id.kind == "ListenerSet" || id.kind.ends_with("Route") {
                for parent in parents(id, object) {
                    index.children.entry(parent).or_default().insert(id.clone());
                }
            }
            if id.kind.ends_with("Route") {
                index.add_backends(id, &object["spec"]);
            }
            for to in references::all(&object["spec"], &id.namespace) {
                index.referring.entry(to).or_default().insert(id.clone());
            }
        }
        index
    }

    fn add_policy(&mut self, id: &ObjectId, spec: &Value) {
        for target in named(spec) {
            let section = target.section.to_owned();
            let key = key(&id.kind, &id.namespace, target.kind, target.name);
            self.targeting
                .entry(key)
                .or_default()
                .push((id.clone(), section.clone()));
            let broad = self.broad.entry(id.kind.clone()).or_default();
            if target.kind == "Gateway" && section.is_empty() && broad.last() != Some(id) {
                broad.push(id.clone());
            }
        }
        if spec["targetSelectors"]
            .as_array()
            .is_some_and(|it| !it.is_empty())
        {
            let place = (id.kind.clone(), id.namespace.clone());
            self.selecting.entry(place).or_default().push(id.clone());
        }
    }

    fn add_backends(&mut self, id: &ObjectId, spec: &Value) {
        let rules = spec["rules"].as_array().into_iter().flatten();
        let backends = rules
            .filter_map(|rule| rule["backendRefs"].as_array())
            .flatten();
        for backend in backends {
            let namespace = backend["namespace"].as_str().unwrap_or(&id.namespace);
            let name = backend["name"].as_str().unwrap_or_default();
            let place = (namespace.to_owned(), name.to_owned());
            self.routes.entry(place).or_default().insert(id.clone());
        }
    }

    /// Returns the policies of a kind and namespace for a target, with its sections.
    pub(super) fn targeting(
        &self,
        (kind, namespace): (&str, &str),
        target: &ObjectId,
    ) -> impl Iterator<Item = &(ObjectId, String)> {
        let key = key(kind, namespace, &target.kind, &target.name);
        self.targeting.get(&key).into_iter().flatten()
    }

    pub(super) fn selecting(&self, kind: &str, namespace: &str) -> impl Iterator<Item = &ObjectId> {
        let place = (kind.to_owned(), namespace.to_owned());
        self.selecting.get(&place).into_iter().flatten()
    }

    /// Returns a policy of the same kind for a whole Gateway.
    pub(super) fn broader(&self, own: &ObjectId) -> Option<&ObjectId> {
        let mut policies = self.broad.get(&own.kind)?.iter();
        policies.find(|id| *id != own)
    }

    pub(super) fn children(&self, parent: &ObjectId) -> impl Iterator<Item = &ObjectId> {
        self.children.get(parent).into_iter().flatten()
    }

    pub(super) fn referring(&self, id: &ObjectId) -> impl Iterator<Item = &ObjectId> {
        self.referring.get(id).into_iter().flatten()
    }

    pub(super) fn routes_to(&self, namespace: &str, name: &str) -> impl Iterator<Item = &ObjectId> {
        let place = (namespace.to_owned(), name.to_owned());
        self.routes.get(&place).into_iter().flatten()
    }
}

fn key(kind: &str, namespace: &str, target: &str, name: &str) -> TargetKey {
    [kind, namespace, target, name].map(str::to_owned)
}

struct NamedTarget<'v> {
    kind: &'v str,
    name: &'v str,
    section: &'v str,
}

fn named(spec: &Value) -> impl Iterator<Item = NamedTarget<'_>> {
    let list = spec["targetRefs"].as_array().into_iter().flatten();
    list.chain(spec.get("targetRef")).map(|target| NamedTarget {
        kind: target["kind"].as_str().unwrap_or_default(),
        name: target["name"].as_str().unwrap_or_default(),
        section: target["sectionName"].as_str().unwrap_or_default(),
    })
}
