//! Records when each condition last changed its status. Nothing else in a status depends on earlier
//! statuses.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use jiff::Timestamp;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{Condition, ConditionStatus, ObjectStatus, Section, Statuses};
use sesame_kinds::world::Kind;
use sesame_resolver::incremental::RouteStatusChange;

/// The keys are hashes, because condition locations are only looked up.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Transitions {
    /// Status and Unix timestamp of each condition.
    since: HashMap<u64, (ConditionStatus, i64)>,
}

impl Transitions {
    pub(crate) fn after(&self, statuses: &Statuses, now: Timestamp) -> Self {
        let mut after = Self {
            since: HashMap::with_capacity(self.since.len()),
        };
        for (kind, name, status) in statuses.objects() {
            after.record(kind, name, status, self, now);
        }
        after.since.shrink_to_fit();
        after
    }

    /// Only the statuses of these routes have changed.
    pub(crate) fn follow(&mut self, changes: &[RouteStatusChange], now: Timestamp) {
        for RouteStatusChange {
            route,
            before: old_status,
            after: new_status,
        } in changes
        {
            let mut before = Self::default();
            for (section, conditions) in ObjectStatus::Route(old_status).sections() {
                for condition in conditions {
                    let id = id(route.kind, &route.name, section, condition);
                    before.since.extend(self.since.remove_entry(&id));
                }
            }
            let new_status = ObjectStatus::Route(new_status);
            self.record(route.kind, &route.name, new_status, &before, now);
        }
    }

    /// A condition keeps its time if its status did not change.
    fn record(
        &mut self,
        kind: Kind,
        name: &NamespacedName,
        status: ObjectStatus<'_>,
        before: &Self,
        now: Timestamp,
    ) {
        for (section, conditions) in status.sections() {
            for condition in conditions {
                let id = id(kind, name, section, condition);
                let time = match before.since.get(&id) {
                    Some((status, time)) if *status == condition.status => *time,
                    // Kubernetes stores whole seconds.
                    _ => now.as_second(),
                };
                self.since.insert(id, (condition.status, time));
            }
        }
    }

    pub(crate) fn since(
        &self,
        kind: Kind,
        name: &NamespacedName,
        section: Section<'_>,
        condition: &Condition,
    ) -> Option<Timestamp> {
        match self.since.get(&id(kind, name, section, condition)) {
            Some((status, time)) if *status == condition.status => {
                Timestamp::from_second(*time).ok()
            }
            _ => None,
        }
    }
}

fn id(kind: Kind, name: &NamespacedName, section: Section<'_>, condition: &Condition) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, name, condition.type_.as_str()).hash(&mut hasher);
    match section {
        Section::Object => {}
        // Hash the name, because a listener's index may change.
        Section::Listener(_, listener) => listener.hash(&mut hasher),
        Section::Parent(index) | Section::Ancestor(index) => index.hash(&mut hasher),
    }
    hasher.finish()
}
