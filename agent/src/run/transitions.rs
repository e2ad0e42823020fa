//! Since when each condition has its status: the one thing of a status that is not a function of the objects.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use jiff::Timestamp;
use sesame_controller::api::NamespacedName;
use sesame_controller::status::{Condition, ConditionStatus, Section, Statuses};
use sesame_controller::world::Kind;

/// The times of all conditions, by a hash of where they stand: there are many, and only the time matters.
#[derive(Clone, Debug, Default)]
pub(super) struct Transitions {
    since: HashMap<u64, (ConditionStatus, Timestamp)>,
}

impl Transitions {
    /// Takes note of what changed its status; forgets what is gone.
    pub(super) fn observe(&mut self, statuses: &Statuses, now: Timestamp) {
        let mut since = HashMap::with_capacity(self.since.len());
        for (kind, name, status) in statuses.objects() {
            for (section, conditions) in status.sections() {
                for condition in conditions {
                    let id = id(kind, name, section, condition);
                    let time = match self.since.get(&id) {
                        Some((status, time)) if *status == condition.status => *time,
                        _ => now,
                    };
                    since.insert(id, (condition.status, time));
                }
            }
        }
        self.since = since;
    }

    /// Since when the condition has its status; `None` if it was not observed with that status.
    pub(super) fn since(
        &self,
        kind: Kind,
        name: &NamespacedName,
        section: Section<'_>,
        condition: &Condition,
    ) -> Option<Timestamp> {
        match self.since.get(&id(kind, name, section, condition)) {
            Some((status, time)) if *status == condition.status => Some(*time),
            _ => None,
        }
    }
}

fn id(kind: Kind, name: &NamespacedName, section: Section<'_>, condition: &Condition) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, name, condition.type_.as_str()).hash(&mut hasher);
    match section {
        Section::Object => {}
        // A listener is the same wherever it stands.
        Section::Listener(_, listener) => listener.hash(&mut hasher),
        Section::Parent(index) | Section::Ancestor(index) => index.hash(&mut hasher),
    }
    hasher.finish()
}
