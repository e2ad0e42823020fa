//! Tracks the objects whose status might need a write, and limits how often each status is written.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sesame_backoff::Backoff;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::agents::Agents;
use super::compose::{self, Status};
use super::contested;
use super::events::{CertificateWarning, CertificateWarnings, MAX_UNREPORTED};
use super::fleet::FleetSummary;
use super::liveness::ClockReading;
use super::pace::Pace;
use super::patch;
use super::transitions::{ObjectTransitions, transitions};
use super::write::WriteOutcome;
use crate::retry::NextAttempt;
use crate::statuses::{Resolved, ResolvedStatuses, RouteStatusUpdate, StatusChange};
use crate::watch::StoredStatus;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::RouteStatus;
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_resolver::INGRESS_CONTROLLER;

/// Delay after a conflict with another writer.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusDigest([u8; 32]);

impl StatusDigest {
    fn of(status: &Value) -> Self {
        Self(Sha256::digest(status.to_string()).into())
    }
}

#[derive(Debug)]
struct Contest {
    manager: Box<str>,
    /// End of the last pause.
    until: Instant,
}

#[derive(Default)]
pub(super) struct Backlog {
    pub(super) resolved: Option<Arc<ResolvedStatuses>>,
    pub(super) warnings: CertificateWarnings,
    /// Objects whose trust has lapsed, for example because a CA certificate expired.
    pub(super) lapsed: BTreeSet<ObjectKey>,
    pub(super) stored: BTreeMap<ObjectKey, StoredStatus>,
    /// Objects whose status might need a write.
    pub(super) open: BTreeSet<ObjectKey>,
    pub(super) writing: BTreeSet<ObjectKey>,
    pub(super) paces: BTreeMap<ObjectKey, Pace>,
    pub(super) retries: BTreeMap<ObjectKey, NextAttempt>,
    /// Statuses as written. Stored statuses can differ: the API server drops unknown fields and
    /// adds defaults.
    pub(super) written: BTreeMap<ObjectKey, (Box<str>, StatusDigest)>,
    /// HTTPProxies whose status is left to another field manager.
    contested: BTreeMap<ObjectKey, Contest>,
    /// Reported in Events, because the Ingress API cannot store conditions.
    reported_ingresses: BTreeMap<ObjectKey, RouteStatus>,
    has_unreported_ingresses: bool,
    /// True if `warnings` predates the last resolution.
    pub(super) is_unwarned: bool,
}

impl Backlog {
    pub(super) fn apply(&mut self, change: StatusChange, agents: &mut Agents) {
        let StatusChange { stored, resolved } = change;
        for (key, stored) in stored {
            if let Some(stored) = stored {
                self.put(key, stored);
            } else {
                self.stored.remove(&key);
                self.contested.remove(&key);
                self.open.remove(&key);
                self.retries.remove(&key);
                self.written.remove(&key);
            }
        }
        match resolved {
            None => {}
            Some(Resolved::World(resolved)) => {
                self.open_differences(&resolved);
                let routes = &resolved.statuses.routes;
                self.contested.retain(|key, _| routes.contains_key(key));
                self.has_unreported_ingresses = true;
                self.is_unwarned = true;
                self.resolved = Some(resolved);
                self.open_layered();
                self.record_revisions(agents);
            }
            Some(Resolved::Routes(RouteStatusUpdate { routes, revisions })) => {
                let Some(resolved) = self.resolved.as_mut().map(Arc::make_mut) else {
                    return;
                };
                self.open.extend(routes.iter().map(|(key, _)| key.clone()));
                resolved.statuses.routes.extend(routes);
                if !revisions.is_empty() {
                    resolved.revisions = revisions;
                    self.record_revisions(agents);
                }
            }
        }
    }

    fn record_revisions(&mut self, agents: &mut Agents) {
        if let Some(resolved) = &self.resolved {
            let gateways = agents.record_revisions(resolved, ClockReading::now());
            self.touch(gateways);
        }
    }

    fn put(&mut self, key: ObjectKey, stored: StoredStatus) {
        let before = self.stored.get(&key);
        // Ignore older versions: a write response can precede older watch events.
        if before.is_some_and(|before| before.number() > stored.number()) {
            return;
        }
        // The status of a changed object is outdated, so write it immediately.
        if before.is_some_and(|before| before.generation != stored.generation) {
            self.paces.remove(&key);
        }
        self.stored.insert(key.clone(), stored);
        self.open.insert(key);
    }

    fn open_differences(&mut self, new: &ResolvedStatuses) {
        let Some(old) = &self.resolved else {
            self.open.extend(self.stored.keys().cloned());
            return;
        };
        let (before, after) = (&old.statuses, &new.statuses);
        let classes = differences(&before.gateway_classes, &after.gateway_classes);
        self.open.extend(classes.map(key_of(Kind::GatewayClass)));
        let gateways = differences(&before.gateways, &after.gateways);
        self.open.extend(gateways.map(key_of(Kind::Gateway)));
        let sets = differences(&before.listener_sets, &after.listener_sets);
        self.open.extend(sets.map(key_of(Kind::ListenerSet)));
        self.open
            .extend(differences(&before.routes, &after.routes).cloned());
        self.open
            .extend(differences(&before.policies, &after.policies).cloned());
        let merged = differences(&old.merged, &new.merged);
        self.open.extend(merged.map(key_of(Kind::Gateway)));
        let unpublishable = differences(&old.unpublishable, &new.unpublishable);
        let addressed = old.by_service.symmetric_difference(&new.by_service);
        let names: BTreeSet<&NamespacedName> = unpublishable.chain(addressed).collect();
        let gateways = after.gateways.keys();
        let published = gateways.filter(|gateway| names.contains(new.published_as(gateway)));
        self.open.extend(published.map(key_of(Kind::Gateway)));
    }

    pub(super) fn open_gateways(&mut self) {
        let keys = self.stored.keys();
        let keys = keys.filter(|key| key.kind == Kind::Gateway).cloned();
        self.open.extend(keys);
        self.open_layered();
    }

    /// Ingress and HTTPProxy statuses contain their Gateways' addresses.
    fn open_layered(&mut self) {
        let Some(resolved) = &self.resolved else {
            return;
        };
        let open = &self.open;
        let affected = resolved.layered().filter(|ingress| {
            let gateway = resolved.gateway_of_layered(ingress);
            gateway.is_some_and(|name| open.contains(&key_of(Kind::Gateway)(&name)))
        });
        let ingresses: Vec<ObjectKey> = affected.cloned().collect();
        self.open.extend(ingresses);
    }

    /// Call this only on the leader. A new leader reports current errors again.
    pub(super) fn take_turned(
        &mut self,
        fleets: &BTreeMap<NamespacedName, FleetSummary>,
    ) -> Vec<ObjectTransitions> {
        let Some(resolved) = self.resolved.clone() else {
            return Vec::new();
        };
        if !std::mem::take(&mut self.has_unreported_ingresses) {
            return Vec::new();
        }
        let (before, mut turned) = (std::mem::take(&mut self.reported_ingresses), Vec::new());
        for key in resolved.ingresses() {
            let (before, after) = (before.get(key), compose::route(key, &resolved, fleets));
            if let Some(after) = &after {
                self.reported_ingresses.insert(key.clone(), after.clone());
            }
            if before == after.as_ref() || turned.len() >= MAX_UNREPORTED {
                continue;
            }
            let all = transitions(&json!(before), &json!(after), INGRESS_CONTROLLER);
            if !all.is_empty() {
                turned.push(ObjectTransitions {
                    key: key.clone(),
                    api_version: "networking.k8s.io/v1".to_owned(),
                    all,
                });
            }
        }
        turned
    }

    /// Returns `None` if the stored status needs no change. `status` is `None` if the object is not
    /// ours.
    pub(super) fn change(
        &self,
        (key, stored): (&ObjectKey, &StoredStatus),
        status: Option<&Status>,
        controller_name: &str,
        now: Timestamp,
    ) -> Option<Value> {
        let change = patch::patch(stored, status, controller_name, now);
        change.filter(|change| !self.was_written(key, stored, change))
    }

    /// Leaves the status to the other program that has just written it. Returns a message unless
    /// one was returned before.
    pub(super) fn postpone(
        &mut self,
        key: ObjectKey,
        pause: Duration,
        now: Instant,
    ) -> Option<ObjectTransitions> {
        let retry = NextAttempt::soon(pause, PAUSES, now);
        self.retries.insert(key.clone(), retry);
        let stored = self.stored.get(&key)?;
        let manager = &stored.other_writer.as_ref()?.manager;
        let contest = Contest {
            manager: manager.clone(),
            until: now + pause,
        };
        let before = self.contested.insert(key.clone(), contest);
        let is_known = before.is_some_and(|before| before.manager == *manager);
        (!is_known).then(|| ObjectTransitions {
            key,
            api_version: stored.api_version.to_string(),
            all: vec![contested::transition(manager)],
        })
    }

    /// A fight has ended if the other program left the status alone for as long as a pause.
    pub(super) fn forget_ended(&mut self, now: Instant) {
        self.paces.retain(|_, pace| !pace.is_over(now));
        self.contested
            .retain(|_, contest| contest.until + contested::QUIET > now);
    }

    pub(super) fn open_warned(&mut self, now: Timestamp) {
        let Some(resolved) = &self.resolved else {
            return;
        };
        let warnings = certificate_warnings(resolved, now);
        let others = differences(&self.warnings, &warnings);
        self.open.extend(others.cloned());
        self.warnings = warnings;
        let lapsed = resolved.statuses.with_lapsed_trust(now);
        let others = self.lapsed.symmetric_difference(&lapsed);
        self.open.extend(others.cloned());
        self.lapsed = lapsed;
    }

    pub(super) fn touch(&mut self, keys: BTreeSet<ObjectKey>) {
        if let Some(resolved) = &self.resolved {
            let gateways = keys.iter().filter(|key| key.kind == Kind::Gateway);
            let gateways: BTreeSet<&NamespacedName> = gateways.map(|key| &key.name).collect();
            let sets = resolved.statuses.listener_sets.iter();
            let sets = sets.filter(|(_, status)| gateways.contains(&status.gateway));
            let sets = sets.map(|(name, _)| key_of(Kind::ListenerSet)(name));
            self.open.extend(sets);
            let policies = resolved.statuses.policies.iter();
            let awaiting = policies.filter(|(_, status)| {
                let mut ancestors = status.ancestors.iter().filter(|it| it.awaits_hosts());
                ancestors.any(|it| it.gateway().is_some_and(|name| gateways.contains(&name)))
            });
            self.open.extend(awaiting.map(|(key, _)| key.clone()));
        }
        if keys.is_empty() {
            return;
        }
        // Envoys may reject other parts of an Ingress now.
        self.has_unreported_ingresses |= keys.iter().any(|key| key.kind == Kind::Ingress);
        self.open.extend(keys);
        self.open_layered();
    }

    /// Returns `None` if the status may be written now.
    pub(super) fn allowed(&self, key: &ObjectKey) -> Option<Instant> {
        let pace = self.paces.get(key).map(Pace::next);
        pace.max(self.retries.get(key).map(|retry| retry.at))
    }

    fn was_written(&self, key: &ObjectKey, stored: &StoredStatus, change: &Value) -> bool {
        let written = self.written.get(key);
        let same_version = written.filter(|(version, _)| *version == stored.version);
        same_version.is_some_and(|(_, before)| *before == StatusDigest::of(change))
    }

    pub(super) fn wrote(&mut self, key: ObjectKey, outcome: WriteOutcome) {
        self.writing.remove(&key);
        match outcome {
            WriteOutcome::Stored {
                before: _,
                stored,
                change,
            } => {
                self.retries.remove(&key);
                let written = (stored.version.clone(), StatusDigest::of(&change));
                self.written.insert(key.clone(), written);
                if self.stored.contains_key(&key) {
                    self.put(key, stored);
                }
            }
            WriteOutcome::Gone => {}
            WriteOutcome::Changed => {
                let retry = NextAttempt::soon(RETRY_INTERVAL, PAUSES, Instant::now());
                self.retries.insert(key, retry);
            }
            WriteOutcome::Failed => {
                let retry = NextAttempt::after(self.retries.get(&key), PAUSES, Instant::now());
                self.retries.insert(key, retry);
            }
        }
    }
}

/// Lists expiry before uncovered hostnames.
fn certificate_warnings(resolved: &ResolvedStatuses, now: Timestamp) -> CertificateWarnings {
    let gateways = resolved.expiries.keys();
    let gateways = gateways.map(|name| (key_of(Kind::Gateway)(name), resolved.warnings(name, now)));
    let sets = resolved.statuses.listener_sets.keys();
    let sets = sets.map(|name| {
        let warnings = resolved.warnings_of_set(name, now);
        (key_of(Kind::ListenerSet)(name), warnings)
    });
    let mut all = CertificateWarnings::new();
    for (key, warnings) in gateways.chain(sets).filter(|(_, it)| !it.is_empty()) {
        let warnings = warnings.into_iter().map(CertificateWarning::from);
        all.insert(key, warnings.collect());
    }
    for (key, hostnames) in &resolved.uncovered {
        let warnings = hostnames.iter().map(CertificateWarning::from);
        all.entry(key.clone()).or_default().extend(warnings);
    }
    all
}

fn key_of(kind: Kind) -> impl Fn(&NamespacedName) -> ObjectKey {
    move |name| ObjectKey {
        kind,
        name: name.clone(),
    }
}

fn differences<'a, K: Ord, V: PartialEq>(
    before: &'a BTreeMap<K, V>,
    after: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = &'a K> {
    // Both maps are sorted, so walk them in parallel.
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (before.peek(), after.peek()) {
                (Some((old, _)), Some((new, _))) => old.cmp(new),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            let old = order.is_le().then(|| before.next()).flatten();
            let new = order.is_ge().then(|| after.next()).flatten();
            match (old, new) {
                (Some((_, old)), Some((_, new))) if old == new => {}
                (old, new) => return new.or(old).map(|(key, _)| key),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use sesame_resolver::UncoveredHostname;

    use super::*;
    use crate::watch::Received;

    #[test]
    fn uncovered_hostname_is_a_warning_of_its_object() {
        let set = Kind::ListenerSet.named(NamespacedName::new("default", "set"));
        let uncovered = UncoveredHostname {
            listener: "https".to_owned(),
            hostname: "a.test".to_owned(),
        };
        let resolved = ResolvedStatuses {
            uncovered: [(set.clone(), vec![uncovered.clone()])].into(),
            ..ResolvedStatuses::default()
        };
        let mut backlog = Backlog {
            resolved: Some(Arc::new(resolved)),
            ..Backlog::default()
        };
        backlog.open_warned(Timestamp::UNIX_EPOCH);
        let expected = vec![CertificateWarning::from(&uncovered)];
        assert_eq!(backlog.warnings, [(set, expected)].into());
    }

    #[test]
    fn contested_status_is_reported_once_per_fight() {
        let managed = json!([{"manager": "contour", "time": "2026-01-01T00:00:00Z",
            "fieldsV1": {"f:status": {"f:conditions": {}}}}]);
        let object = json!({"metadata": {"name": "a", "namespace": "b", "managedFields": managed}});
        let received: Received = serde_json::from_value(object).expect("an object");
        let stored = StoredStatus::of(Kind::HttpProxy, "projectcontour.io/v1", &received, "ours");
        let key = Kind::HttpProxy.named(received.name());
        let mut backlog = Backlog::default();
        backlog
            .stored
            .insert(key.clone(), stored.expect("a status"));
        let (now, pause) = (Instant::now(), Duration::from_secs(60));
        let reported = backlog.postpone(key.clone(), pause, now);
        let reported = reported.expect("the first time");
        assert!(reported.all[0].message.contains("contour"));
        assert_eq!(backlog.allowed(&key), Some(now + pause));
        let later = now + pause;
        backlog.forget_ended(later);
        assert!(backlog.postpone(key.clone(), pause, later).is_none());
        assert_eq!(backlog.allowed(&key), Some(later + pause));
        let ended = later + pause + contested::QUIET;
        backlog.forget_ended(ended);
        assert!(backlog.postpone(key, pause, ended).is_some());
    }

    #[test]
    fn differences_list_removed_added_and_changed_keys() {
        let map = |pairs: &[(u8, u8)]| pairs.iter().copied().collect::<BTreeMap<_, _>>();
        let before = map(&[(1, 1), (2, 1), (4, 1), (6, 1)]);
        let after = map(&[(0, 1), (2, 1), (4, 2), (5, 1), (6, 1), (9, 1)]);
        let found: Vec<u8> = differences(&before, &after).copied().collect();
        assert_eq!(found, [0, 1, 4, 5, 9]);
        assert_eq!(differences(&after, &after).next(), None);
        assert_eq!(differences(&before, &map(&[])).count(), 4);
    }
}
