//! Since when each condition has its status: the one thing of a status that is not a function of the objects.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use jiff::Timestamp;
use sesame_controller::api::NamespacedName;
use sesame_controller::status::{Condition, ConditionStatus, Statuses};
use sesame_controller::world::Kind;

/// Which part of an object a condition stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Section<'a> {
    /// The object itself.
    Object,
    /// A listener, by name.
    Listener(&'a str),
    /// A parent, by position.
    Parent(usize),
}

/// The times of all conditions, by a hash of where they stand: there are many, and only the time matters.
#[derive(Clone, Debug, Default)]
pub(super) struct Transitions {
    since: HashMap<u64, (ConditionStatus, Timestamp)>,
}

impl Transitions {
    /// Takes note of what changed its status; forgets what is gone.
    pub(super) fn observe(&mut self, statuses: &Statuses, now: Timestamp) {
        let mut since = HashMap::with_capacity(self.since.len());
        let mut note = |kind, name: &NamespacedName, section, conditions: &[Condition]| {
            for condition in conditions {
                let id = id(kind, name, section, condition);
                let time = match self.since.get(&id) {
                    Some((status, time)) if *status == condition.status => *time,
                    _ => now,
                };
                since.insert(id, (condition.status, time));
            }
        };
        for (name, status) in &statuses.gateway_classes {
            note(Kind::GatewayClass, name, Section::Object, &status.conditions);
        }
        for (name, status) in &statuses.gateways {
            note(Kind::Gateway, name, Section::Object, &status.conditions);
            for listener in &status.listeners {
                let section = Section::Listener(&listener.name);
                note(Kind::Gateway, name, section, &listener.conditions);
            }
        }
        for (key, status) in &statuses.routes {
            for (index, parent) in status.parents.iter().enumerate() {
                note(key.kind, &key.name, Section::Parent(index), &parent.conditions);
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
    (kind, name, section, condition.type_.as_str()).hash(&mut hasher);
    hasher.finish()
}
