//! Merges the watches on one kind, one per namespace. The first list is delivered only when every
//! namespace has been listed, because missing objects count as deleted. If a namespace cannot be
//! listed later, its known objects are kept.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{PartialObjectMeta, PartialObjectMetaExt as _};
use kube::runtime::watcher::Event;

use super::WatchEvent;
use sesame_kinds::api::NamespacedName;

/// Creates a placeholder for a deleted object.
pub(crate) trait FromName {
    fn from_name(metadata: ObjectMeta) -> Self;
}

impl<K> FromName for PartialObjectMeta<K> {
    fn from_name(metadata: ObjectMeta) -> Self {
        metadata.into_response_partial()
    }
}

pub(super) struct MergedLists<T> {
    watches: Vec<NamespaceList<T>>,
    /// Every watch has delivered its first list.
    whole: bool,
}

struct NamespaceList<T> {
    /// A list that is still being received.
    arriving: Vec<(NamespacedName, T)>,
    /// `None` before the watch's first list. Unused once `whole` is true.
    early: Option<BTreeMap<NamespacedName, T>>,
    /// Used once `whole` is true.
    known: BTreeSet<NamespacedName>,
}

impl<T> MergedLists<T> {
    pub(super) fn new(watches: usize) -> Self {
        let empty = || NamespaceList {
            arriving: Vec::new(),
            early: None,
            known: BTreeSet::new(),
        };
        Self {
            watches: std::iter::repeat_with(empty).take(watches).collect(),
            whole: false,
        }
    }

    /// `gone` creates a placeholder for a deleted object.
    pub(super) fn apply(
        &mut self,
        index: usize,
        event: Event<(NamespacedName, T)>,
        gone: impl Fn(NamespacedName) -> T,
    ) -> Vec<WatchEvent<T>> {
        let (whole, single) = (self.whole, self.watches.len() == 1);
        let Some(watch) = self.watches.get_mut(index) else {
            return Vec::new();
        };
        match event {
            Event::Init => watch.arriving = Vec::new(),
            Event::InitApply(found) => watch.arriving.push(found),
            Event::InitDone => {
                let listed = std::mem::take(&mut watch.arriving);
                if single {
                    let all = listed.into_iter().map(|(_, object)| object);
                    return vec![WatchEvent::Listed(all.collect())];
                }
                if whole {
                    return watch.relist(listed, gone);
                }
                watch.early = Some(listed.into_iter().collect());
                return self.first_list().into_iter().collect();
            }
            Event::Apply((_, object)) if single => return vec![WatchEvent::Applied(object)],
            Event::Delete((_, object)) if single => return vec![WatchEvent::Deleted(object)],
            Event::Apply((name, object)) if whole => {
                watch.known.insert(name);
                return vec![WatchEvent::Applied(object)];
            }
            Event::Delete((name, object)) if whole => {
                watch.known.remove(&name);
                return vec![WatchEvent::Deleted(object)];
            }
            Event::Apply((name, object)) => {
                watch.early.get_or_insert_default().insert(name, object);
            }
            Event::Delete((name, _)) => {
                watch.early.get_or_insert_default().remove(&name);
            }
        }
        Vec::new()
    }

    /// Returns `None` until every watch has delivered its first list.
    fn first_list(&mut self) -> Option<WatchEvent<T>> {
        self.whole = self.watches.iter().all(|watch| watch.early.is_some());
        if !self.whole {
            return None;
        }
        let mut all = Vec::new();
        for watch in &mut self.watches {
            for (name, object) in watch.early.take().unwrap_or_default() {
                watch.known.insert(name);
                all.push(object);
            }
        }
        Some(WatchEvent::Listed(all))
    }
}

impl<T> NamespaceList<T> {
    fn relist(
        &mut self,
        listed: Vec<(NamespacedName, T)>,
        gone: impl Fn(NamespacedName) -> T,
    ) -> Vec<WatchEvent<T>> {
        let names: BTreeSet<NamespacedName> = listed.iter().map(|(name, _)| name.clone()).collect();
        let before = std::mem::replace(&mut self.known, names);
        let missing = before.into_iter().filter(|name| !self.known.contains(name));
        let mut events: Vec<WatchEvent<T>> = missing
            .map(|name| WatchEvent::Deleted(gone(name)))
            .collect();
        events.extend(
            listed
                .into_iter()
                .map(|(_, object)| WatchEvent::Applied(object)),
        );
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a sequence of events. Each is `namespace/name`, or a marker for the start or end of a
    /// list. Returns the resulting events.
    fn feed(lists: &mut MergedLists<String>, index: usize, events: &[&str]) -> Vec<String> {
        let named = |text: &str| {
            let (namespace, name) = text.split_once('/').expect("namespace/name");
            (NamespacedName::new(namespace, name), text.to_owned())
        };
        let mut all = Vec::new();
        for text in events {
            let event = match text.split_at(1) {
                ("[", "") => Event::Init,
                ("]", "") => Event::InitDone,
                (":", name) => Event::InitApply(named(name)),
                ("+", name) => Event::Apply(named(name)),
                ("-", name) => Event::Delete(named(name)),
                _ => panic!("{text}"),
            };
            let happened = lists.apply(index, event, |name| format!("{name} by name"));
            all.extend(happened.into_iter().map(|event| match event {
                WatchEvent::Listed(objects) => format!("all: {}", objects.join(" ")),
                WatchEvent::Applied(object) => format!("+{object}"),
                WatchEvent::Deleted(object) => format!("-{object}"),
            }));
        }
        all
    }

    #[test]
    fn merged_list_is_complete_once_namespaces_are_listed() {
        let mut lists = MergedLists::new(2);
        let none: [&str; 0] = [];
        assert_eq!(feed(&mut lists, 0, &["[", ":a/1", ":a/2", "]"]), none);
        // A restarted list discards the part that has already arrived.
        assert_eq!(feed(&mut lists, 0, &["+a/3", "-a/1"]), none);
        assert_eq!(feed(&mut lists, 1, &["[", ":b/0", "[", ":b/1"]), none);
        assert_eq!(feed(&mut lists, 1, &["]"]), ["all: a/2 a/3 b/1"]);
        assert_eq!(feed(&mut lists, 0, &["+a/4", "-a/2"]), ["+a/4", "-a/2"]);
    }

    #[test]
    fn relisted_namespace_changes_only_its_own_objects() {
        let mut lists = MergedLists::new(2);
        feed(&mut lists, 0, &["[", ":a/1", ":a/2", "]", "+a/3"]);
        assert_eq!(feed(&mut lists, 1, &["[", "]"]), ["all: a/1 a/2 a/3"]);
        feed(&mut lists, 0, &["-a/3"]);
        assert_eq!(
            feed(&mut lists, 0, &["[", ":a/2", ":a/4", "]"]),
            ["-a/1 by name", "+a/2", "+a/4"]
        );
        let none: [&str; 0] = [];
        assert_eq!(feed(&mut lists, 1, &["[", "]"]), none);
    }

    #[test]
    fn single_watch_passes_every_list_on() {
        let mut lists = MergedLists::new(1);
        for _ in 0..2 {
            assert_eq!(feed(&mut lists, 0, &["[", ":a/1", "]"]), ["all: a/1"]);
        }
        assert_eq!(feed(&mut lists, 0, &["+a/2", "-a/1"]), ["+a/2", "-a/1"]);
    }
}
