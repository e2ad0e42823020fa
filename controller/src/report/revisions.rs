//! Tracks the revisions with which a host serves the current generation of a Gateway. Any revision
//! since the last change to the Gateway object counts, because changes to other objects may still
//! be in progress.

use std::collections::{BTreeMap, VecDeque};

use sesame_kinds::api::NamespacedName;
use sesame_proto::digest::short;

const MAX_REVISIONS: usize = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Revisions {
    generation: i64,
    /// In ascending order.
    known: VecDeque<(u64, String)>,
    newest: u64,
    /// Each ListenerSet's generation, and the first revision that contains it.
    sets: BTreeMap<NamespacedName, (i64, u64)>,
}

impl Revisions {
    pub(super) fn record<'s>(
        &mut self,
        generation: i64,
        revision: &str,
        sets: impl IntoIterator<Item = (&'s NamespacedName, i64)>,
    ) {
        if self.generation != generation {
            self.generation = generation;
            self.known.clear();
        }
        let reported = short(revision).to_owned();
        if self.known.back().map(|(_, known)| known) != Some(&reported) {
            self.newest += 1;
            self.known.retain(|(_, known)| *known != reported);
            self.known.push_back((self.newest, reported));
        }
        if self.known.len() > MAX_REVISIONS {
            self.known.pop_front();
        }
        let before = std::mem::take(&mut self.sets);
        let since = |name: &NamespacedName, generation: i64| match before.get(name) {
            Some((known, since)) if *known == generation => *since,
            _ => self.newest,
        };
        let sets = sets.into_iter();
        self.sets = sets
            .map(|(name, generation)| (name.clone(), (generation, since(name, generation))))
            .collect();
    }

    /// Returns `None` if the revision is older than the last change to the Gateway.
    pub(super) fn number(&self, reported: &str) -> Option<u64> {
        let mut known = self.known.iter();
        let (number, _) = known.find(|(_, known)| known == reported)?;
        Some(*number)
    }

    pub(super) fn sets_changed_after(&self, number: u64) -> impl Iterator<Item = &NamespacedName> {
        let sets = self.sets.iter();
        sets.filter(move |(_, (_, since))| *since > number)
            .map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_listener_set_needs_its_own_revision() {
        let (a, b) = (
            NamespacedName::new("a", "set"),
            NamespacedName::new("b", "set"),
        );
        let mut revisions = Revisions::default();
        let without = |revisions: &Revisions, reported: &str| {
            let number = revisions.number(reported)?;
            let sets = revisions.sets_changed_after(number);
            Some(sets.map(ToString::to_string).collect::<Vec<_>>())
        };
        revisions.record(1, "first", [(&a, 1), (&b, 1)]);
        assert_eq!(without(&revisions, "first"), Some(vec![]));
        revisions.record(1, "second", [(&a, 1), (&b, 1)]);
        revisions.record(1, "third", [(&a, 1), (&b, 2)]);
        let b = vec![b.to_string()];
        assert_eq!(without(&revisions, "first"), Some(b.clone()));
        assert_eq!(without(&revisions, "second"), Some(b));
        assert_eq!(without(&revisions, "third"), Some(vec![]));
        assert_eq!(without(&revisions, "unknown"), None);
        revisions.record(2, "fourth", [(&a, 1)]);
        assert_eq!(without(&revisions, "third"), None);
        assert_eq!(without(&revisions, "fourth"), Some(vec![]));
    }
}
