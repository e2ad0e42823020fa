//! Tracks each change from its watch event to its publication, and exports spans for it. Tracking
//! must never delay a publication.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::sync::watch;

use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::ObjectKey;
use sesame_spans::{ChangeTrace, CollectorError, CollectorSettings, Reporting, Spans, TraceId};

const MAX_NAMED: usize = 32;

#[derive(Clone, Debug, Default)]
pub(crate) struct SeenObjects {
    named: Vec<(ObjectKey, SystemTime)>,
    /// Number of all changes, including changes that are not in `named`.
    count: usize,
}

impl SeenObjects {
    pub(crate) fn record(&mut self, object: ObjectKey, seen: SystemTime) {
        self.count += 1;
        if self.named.len() < MAX_NAMED && !self.named.iter().any(|(named, _)| *named == object) {
            self.named.push((object, seen));
        }
    }

    fn add(&mut self, later: Self) {
        let count = self.count + later.count;
        for (object, seen) in later.named {
            self.record(object, seen);
        }
        self.count = count;
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ResolvedChange {
    revision: String,
    seen: SeenObjects,
    resolved: (SystemTime, SystemTime),
}

#[derive(Clone, Debug)]
pub(crate) struct WrittenStep {
    pub(crate) name: &'static str,
    pub(crate) writes: usize,
    pub(crate) times: (SystemTime, SystemTime),
}

/// `None` if no collector is configured.
#[derive(Clone, Default)]
pub(crate) struct Changes(Option<Arc<ChangeLog>>);

struct ChangeLog {
    spans: Spans,
    leading: watch::Receiver<bool>,
    known: Mutex<KnownChanges>,
}

#[derive(Default)]
struct KnownChanges {
    /// `None` before the first resolution, which does not count as a change.
    revisions: Option<BTreeMap<NamespacedName, String>>,
    waiting: BTreeMap<NamespacedName, ResolvedChange>,
}

impl Changes {
    pub(crate) fn follow(
        collector: Option<CollectorSettings>,
        replica: &str,
        leading: watch::Receiver<bool>,
    ) -> Result<Self, CollectorError> {
        let reporting = Reporting {
            service: "sesame-controller".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: replica.to_owned(),
        };
        let spans = Spans::start(collector, reporting)?;
        let log = spans.is_on().then(|| ChangeLog {
            spans,
            leading,
            known: Mutex::default(),
        });
        Ok(Self(log.map(Arc::new)))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Must be called before the revisions are sent to the publisher.
    pub(crate) fn resolved(
        &self,
        seen: &mut SeenObjects,
        start: SystemTime,
        revisions: &BTreeMap<NamespacedName, String>,
    ) {
        let Some(log) = &self.0 else {
            return;
        };
        let seen = std::mem::take(seen);
        let resolved = (start, SystemTime::now());
        let mut known = log.known();
        let before = known.revisions.replace(revisions.clone());
        let Some(before) = before.filter(|_| *log.leading.borrow()) else {
            known.waiting.clear();
            return;
        };
        known.waiting.retain(|name, _| revisions.contains_key(name));
        for (name, revision) in revisions {
            if before.get(name) != Some(revision) {
                let change = ResolvedChange {
                    revision: revision.clone(),
                    seen: seen.clone(),
                    resolved,
                };
                known.add(name, change);
            }
        }
    }

    /// Must be called before the revisions are written.
    pub(crate) fn take(
        &self,
        revisions: impl FnOnce() -> BTreeMap<NamespacedName, String>,
    ) -> BTreeMap<NamespacedName, ResolvedChange> {
        let Some(log) = &self.0 else {
            return BTreeMap::new();
        };
        let mut known = log.known();
        let wanted = revisions();
        let all = std::mem::take(&mut known.waiting);
        let (taken, left) = all
            .into_iter()
            .partition(|(name, change)| wanted.get(name) == Some(&change.revision));
        known.waiting = left;
        taken
    }

    /// Restores a change after a failed write.
    pub(crate) fn give_back(&self, gateway: &NamespacedName, change: ResolvedChange) {
        if let Some(log) = &self.0 {
            let mut known = log.known();
            match known.waiting.remove(gateway) {
                Some(later) => {
                    known.waiting.insert(gateway.clone(), change);
                    known.add(gateway, later);
                }
                None => {
                    known.waiting.insert(gateway.clone(), change);
                }
            }
        }
    }

    /// `version` is the `resourceVersion` of the manifest, which the last of `steps` wrote.
    pub(crate) fn published(
        &self,
        gateway: &NamespacedName,
        change: &ResolvedChange,
        version: u64,
        steps: &[WrittenStep],
    ) {
        let (Some(log), Some(first), Some(last)) = (&self.0, steps.first(), steps.last()) else {
            return;
        };
        let ResolvedChange {
            revision,
            seen: SeenObjects { named, count },
            resolved,
        } = change;
        let gateway = gateway.to_string();
        let id = TraceId::of_publication(&gateway, revision, version);
        let trace = ChangeTrace::new(id, "", &gateway, revision);
        let (publish_start, end) = (first.times.0, last.times.1);
        let start = named.iter().map(|(_, seen)| *seen).min();
        let start = start.unwrap_or(resolved.0).min(resolved.0);
        let mut root = trace.root((start, end)).number("sesame.changes", *count);
        if let Some((object, _)) = named.first() {
            root = root.text("sesame.object", &object.to_string());
        }
        log.spans.send(root);
        for (object, seen) in named {
            let span = trace.object(&object.to_string(), (*seen, resolved.0));
            log.spans.send(span);
        }
        log.spans.send(trace.span("resolve", id.root(), *resolved));
        let publish = trace.span("publish", id.root(), (publish_start, end));
        let parent = publish.id();
        log.spans.send(publish);
        for step in steps {
            let WrittenStep {
                name,
                writes,
                times,
            } = step;
            let span = trace.span(name, parent, *times);
            log.spans.send(span.number("sesame.writes", *writes));
        }
    }
}

impl ChangeLog {
    fn known(&self) -> std::sync::MutexGuard<'_, KnownChanges> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownChanges {
    fn add(&mut self, gateway: &NamespacedName, later: ResolvedChange) {
        let before = self.waiting.remove(gateway);
        let change = match before {
            Some(mut before) => {
                before.seen.add(later.seen);
                ResolvedChange {
                    seen: before.seen,
                    ..later
                }
            }
            None => later,
        };
        self.waiting.insert(gateway.clone(), change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_kinds::world::Kind;

    fn edge() -> NamespacedName {
        NamespacedName::new("ns", "edge")
    }

    fn at(revision: &str) -> BTreeMap<NamespacedName, String> {
        BTreeMap::from([(edge(), revision.to_owned())])
    }

    fn resolve(changes: &Changes, route: &str, revision: &str) {
        let mut seen = SeenObjects::default();
        let route = Kind::HttpRoute.named(NamespacedName::new("ns", route));
        seen.record(route, SystemTime::UNIX_EPOCH);
        changes.resolved(&mut seen, SystemTime::UNIX_EPOCH, &at(revision));
    }

    fn taken(changes: &Changes, revision: &str) -> Option<(Vec<String>, usize)> {
        let change = changes.take(|| at(revision)).remove(&edge())?;
        let names = change.seen.named.iter();
        let names = names.map(|(object, _)| object.name.name.clone()).collect();
        changes.give_back(&edge(), change.clone());
        Some((names, change.seen.count))
    }

    #[tokio::test]
    async fn overtaken_change_joins_next_one_on_leader_only() {
        let collector = CollectorSettings::new("http://127.0.0.1:9", None, None);
        let (lead, leading) = watch::channel(true);
        let changes = Changes::follow(collector.ok(), "one", leading).expect("no file is read");
        resolve(&changes, "before", "0");
        assert_eq!(taken(&changes, "0"), None, "initial state is not a change");
        resolve(&changes, "a", "1");
        assert_eq!(taken(&changes, "0"), None, "change has a newer revision");
        assert_eq!(taken(&changes, "1"), Some((vec!["a".to_owned()], 1)));
        resolve(&changes, "b", "2");
        let both = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(taken(&changes, "2"), Some((both.clone(), 2)));
        resolve(&changes, "b", "3");
        assert_eq!(taken(&changes, "3"), Some((both, 3)));
        lead.send_replace(false);
        resolve(&changes, "c", "4");
        assert_eq!(taken(&changes, "4"), None);
    }
}
