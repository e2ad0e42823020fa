//! Which objects get the requests of others.

use std::collections::{BTreeMap, BTreeSet};

use super::super::draft::ObjectId;
use super::super::routing::covering;

/// The lowest and the highest priority of an object's rules for a host.
type Priorities = (i64, i64);

/// Objects that serve a host. The empty host stands for all.
#[derive(Debug, Default)]
pub(super) struct ServedHosts(BTreeMap<String, BTreeMap<ObjectId, Priorities>>);

impl ServedHosts {
    pub(super) fn add(&mut self, host: &str, id: &ObjectId, priority: i64) {
        let users = self.0.entry(host.to_owned()).or_default();
        let known = users.entry(id.clone()).or_insert((priority, priority));
        *known = (known.0.min(priority), known.1.max(priority));
    }

    /// Returns objects, and those that would get their requests if they were left out. Objects
    /// of narrower hosts do so unless all their rules have a higher priority.
    pub(super) fn sharing(&self, ids: &BTreeSet<ObjectId>) -> BTreeSet<ObjectId> {
        let mut own: BTreeMap<&str, i64> = BTreeMap::new();
        for (host, users) in &self.0 {
            let priorities = users.iter().filter(|(id, _)| ids.contains(*id));
            let highest = priorities.map(|(_, (_, highest))| *highest).max();
            own.extend(highest.map(|it| (host.as_str(), it)));
        }
        let mut shared = ids.clone();
        let wider = own.keys().flat_map(|host| covering(host));
        let wider: BTreeSet<String> = wider.collect();
        for (host, users) in &self.0 {
            let is_wider = wider.contains(host);
            let covering = covering(host);
            let guard = covering.iter().filter_map(|it| own.get(it.as_str())).max();
            let others = users.iter().filter(|(_, (lowest, _))| {
                is_wider || guard.is_some_and(|priority| lowest <= priority)
            });
            shared.extend(others.map(|(id, _)| id.clone()));
        }
        shared
    }
}
