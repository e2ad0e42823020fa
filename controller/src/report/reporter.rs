//! Writes statuses, while this replica leads: one write of an object at a time, and few of all.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::agents::Agents;
use super::compose::compose;
use super::events::{self, Expiring};
use super::liveness::Moment;
use super::pace::Pace;
use super::patch::patch;
use super::write::{self, Outcome};
use crate::retry::{Pauses, Retry};
use crate::serve::Metrics;
use crate::statuses::{
    GatewayProblems, Resolved, ResolvedStatuses, RouteStatusUpdate, StatusChange,
};
use crate::watch::StoredStatus;
use sesame_gateway_api::api::Network;
use sesame_gateway_api::world::{Kind, ObjectKey};

/// How many objects are written at a time.
const WRITES_AT_ONCE: usize = 8;
/// How often clocks are looked at: hosts may be lost, agents forgotten.
const TICK: Duration = Duration::from_secs(5);
/// After a write that another controller's has overtaken.
const AGAIN: Duration = Duration::from_millis(100);
/// Pauses between attempts at a write that was refused.
const PAUSES: Pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(30));

/// What the reporter is made of.
pub(crate) struct Reporter {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) controller_name: String,
    /// Where hosts may serve that are no Nodes.
    pub(crate) host_addresses: Vec<Network>,
    pub(crate) changes: UnboundedReceiver<StatusChange>,
    pub(crate) failures: watch::Receiver<GatewayProblems>,
    pub(crate) without_service: watch::Receiver<GatewayProblems>,
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) expiring: watch::Sender<Expiring>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What it knows.
#[derive(Default)]
struct Known {
    resolved: Option<Arc<ResolvedStatuses>>,
    /// What is to be said of certificates.
    expiring: Expiring,
    stored: BTreeMap<ObjectKey, StoredStatus>,
    /// Objects that may have to be written.
    open: BTreeSet<ObjectKey>,
    /// Objects being written.
    writing: BTreeSet<ObjectKey>,
    paces: BTreeMap<ObjectKey, Pace>,
    /// Objects whose write failed, and when they are written next.
    retries: BTreeMap<ObjectKey, Retry>,
    /// What was written last, and the version it gave: the API server may drop what it does not know.
    written: BTreeMap<ObjectKey, (Box<str>, Value)>,
}

impl Reporter {
    /// Runs until there is nothing to wait for any more.
    pub(crate) async fn run(mut self) {
        let mut known = Known::default();
        let mut writes: JoinSet<(ObjectKey, Outcome)> = JoinSet::new();
        let (mut agents, mut heard) = Agents::watch(
            &self.client,
            &self.namespace,
            self.host_addresses.clone(),
            &self.metrics,
        );
        let mut ticks = tokio::time::interval(TICK);
        loop {
            let wait = self.start_writes(&mut known, &agents, &mut writes);
            tokio::select! {
                change = self.changes.recv() => match change {
                    Some(change) => known.take(change, &mut agents),
                    None => return,
                },
                Some(event) = heard.recv() => {
                    let gateways = agents.hear(event, Moment::now());
                    known.touch(gateways);
                }
                changed = self.failures.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    known.open_all(Kind::Gateway);
                }
                // Nobody may be there to tell: Services are not always made.
                Ok(()) = self.without_service.changed() => known.open_all(Kind::Gateway),
                changed = self.leading.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    known.open.extend(known.stored.keys().cloned());
                }
                Some(Ok((key, outcome))) = writes.join_next() => known.wrote(key, outcome),
                _ = ticks.tick() => {
                    let gateways = agents.look_at_the_clock(Moment::now());
                    known.touch(gateways);
                    known.open_expiring(write::now());
                    events::tell(&known.expiring, &self.expiring);
                    let now = Instant::now();
                    known.paces.retain(|_, pace| !pace.is_over(now));
                    if *self.leading.borrow() && let Some(resolved) = &known.resolved {
                        agents.forget_stale(resolved, Moment::now());
                    }
                }
                Some(()) = OptionFuture::from(wait.map(sleep_until)) => {}
            }
            // Everything that has arrived is taken before anything is compared.
            while let Ok(change) = self.changes.try_recv() {
                known.take(change, &mut agents);
            }
            while let Ok(event) = heard.try_recv() {
                let gateways = agents.hear(event, Moment::now());
                known.touch(gateways);
            }
        }
    }

    /// Starts what may be written now; says when the next may.
    fn start_writes(
        &self,
        known: &mut Known,
        agents: &Agents,
        writes: &mut JoinSet<(ObjectKey, Outcome)>,
    ) -> Option<Instant> {
        let resolved = known.resolved.clone()?;
        if !*self.leading.borrow() || !agents.listed() {
            return None;
        }
        let failures = self.failures.borrow().clone();
        let without_service = self.without_service.borrow().clone();
        let (now, time) = (Instant::now(), write::now());
        let mut next: Option<Instant> = None;
        let mut settled = Vec::new();
        for key in &known.open {
            if writes.len() >= WRITES_AT_ONCE {
                break;
            }
            if known.writing.contains(key) {
                continue;
            }
            let allowed = known.paces.get(key).map(Pace::next);
            let allowed = allowed.max(known.retries.get(key).map(|retry| retry.at));
            if let Some(allowed) = allowed.filter(|allowed| *allowed > now) {
                next = Some(next.map_or(allowed, |next| next.min(allowed)));
                continue;
            }
            let Some(stored) = known.stored.get(key) else {
                settled.push(key.clone());
                continue;
            };
            let status = compose(
                key,
                &resolved,
                agents.fleets(),
                &failures,
                &without_service,
                time,
            );
            let change = patch(stored, status.as_ref(), &self.controller_name, time);
            let pointless = |change: &Value| {
                known
                    .written
                    .get(key)
                    .is_some_and(|(version, before)| *version == stored.version && before == change)
            };
            let Some(change) = change.filter(|change| !pointless(change)) else {
                settled.push(key.clone());
                continue;
            };
            self.metrics.status_written(key.kind.as_str());
            known.writing.insert(key.clone());
            let pace = known.paces.entry(key.clone());
            pace.and_modify(|pace| pace.wrote(now))
                .or_insert_with(|| Pace::new(now));
            writes.spawn(write::write(
                self.client.clone(),
                key.clone(),
                stored.clone(),
                change,
            ));
        }
        for key in settled {
            known.open.remove(&key);
        }
        next
    }
}

impl Known {
    fn take(&mut self, change: StatusChange, agents: &mut Agents) {
        let StatusChange { stored, resolved } = change;
        for (key, stored) in stored {
            if let Some(stored) = stored {
                self.put(key, stored);
            } else {
                self.stored.remove(&key);
                self.open.remove(&key);
                self.retries.remove(&key);
                self.written.remove(&key);
            }
        }
        match resolved {
            None => {}
            Some(Resolved::World(resolved)) => {
                self.open_differences(&resolved);
                self.resolved = Some(resolved);
                self.note_revisions(agents);
            }
            Some(Resolved::Routes(RouteStatusUpdate { routes, revisions })) => {
                // The whole world was resolved before, and nobody else holds the outcome by now.
                let Some(resolved) = self.resolved.as_mut().map(Arc::make_mut) else {
                    return;
                };
                self.open.extend(routes.iter().map(|(key, _)| key.clone()));
                resolved.statuses.routes.extend(routes);
                if !revisions.is_empty() {
                    resolved.revisions = revisions;
                    self.note_revisions(agents);
                }
            }
        }
    }

    fn note_revisions(&mut self, agents: &mut Agents) {
        if let Some(resolved) = &self.resolved {
            let gateways = agents.note_revisions(resolved, Moment::now());
            self.touch(gateways);
        }
    }

    fn put(&mut self, key: ObjectKey, stored: StoredStatus) {
        let known = self.stored.get(&key);
        // An answer to a write may overtake what the watch says.
        if known.is_some_and(|known| known.number() > stored.number()) {
            return;
        }
        // What is said of an object that was changed is wrong until it is written: no pause for that.
        if known.is_some_and(|known| known.generation != stored.generation) {
            self.paces.remove(&key);
        }
        self.stored.insert(key.clone(), stored);
        self.open.insert(key);
    }

    /// Opens the objects whose resolved status has changed.
    fn open_differences(&mut self, new: &ResolvedStatuses) {
        let Some(old) = &self.resolved else {
            self.open.extend(self.stored.keys().cloned());
            return;
        };
        let of = |kind| {
            move |name: &sesame_gateway_api::api::NamespacedName| ObjectKey {
                kind,
                name: name.clone(),
            }
        };
        let (before, after) = (&old.statuses, &new.statuses);
        let classes = differences(&before.gateway_classes, &after.gateway_classes);
        self.open.extend(classes.map(of(Kind::GatewayClass)));
        let gateways = differences(&before.gateways, &after.gateways);
        self.open.extend(gateways.map(of(Kind::Gateway)));
        let sets = differences(&before.listener_sets, &after.listener_sets);
        self.open.extend(sets.map(of(Kind::ListenerSet)));
        self.open
            .extend(differences(&before.routes, &after.routes).cloned());
        let policies = differences(&before.backend_tls_policies, &after.backend_tls_policies);
        self.open.extend(policies.map(of(Kind::BackendTlsPolicy)));
        let unpublishable = differences(&old.unpublishable, &new.unpublishable);
        self.open.extend(unpublishable.map(of(Kind::Gateway)));
    }

    fn open_all(&mut self, kind: Kind) {
        let keys = self.stored.keys().filter(|key| key.kind == kind).cloned();
        self.open.extend(keys);
    }

    /// Opens Gateways of whose certificates something else is to be said.
    fn open_expiring(&mut self, now: Timestamp) {
        let Some(resolved) = &self.resolved else {
            return;
        };
        let expiring: Expiring = resolved
            .expiries
            .keys()
            .map(|gateway| (gateway.clone(), resolved.warnings(gateway, now)))
            .filter(|(_, warnings)| !warnings.is_empty())
            .collect();
        let others = differences(&self.expiring, &expiring);
        self.open.extend(others.map(|name| ObjectKey {
            kind: Kind::Gateway,
            name: name.clone(),
        }));
        self.expiring = expiring;
    }

    /// Opens what hosts say something else about.
    fn touch(&mut self, keys: BTreeSet<ObjectKey>) {
        if let Some(resolved) = &self.resolved {
            let sets = resolved
                .statuses
                .listener_sets
                .iter()
                .filter(|(_, status)| {
                    keys.iter()
                        .any(|key| key.kind == Kind::Gateway && key.name == status.gateway)
                });
            self.open.extend(sets.map(|(name, _)| ObjectKey {
                kind: Kind::ListenerSet,
                name: name.clone(),
            }));
        }
        self.open.extend(keys);
    }

    fn wrote(&mut self, key: ObjectKey, outcome: Outcome) {
        self.writing.remove(&key);
        match outcome {
            Outcome::Stored { stored, change } => {
                self.retries.remove(&key);
                self.written
                    .insert(key.clone(), (stored.version.clone(), change));
                if self.stored.contains_key(&key) {
                    self.put(key, stored);
                }
            }
            Outcome::Gone => {}
            // The watch brings the new version, or has already.
            Outcome::Changed => {
                let retry = Retry::soon(AGAIN, &PAUSES, Instant::now());
                self.retries.insert(key, retry);
            }
            Outcome::Failed => {
                let retry = Retry::after(self.retries.get(&key), &PAUSES, Instant::now());
                self.retries.insert(key, retry);
            }
        }
    }
}

/// The keys of entries that are not in both, or not the same.
fn differences<'a, K: Ord, V: PartialEq>(
    before: &'a BTreeMap<K, V>,
    after: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = &'a K> {
    // Both are in order: no key is looked for.
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
    use super::*;

    #[test]
    fn what_is_gone_new_or_other_differs_and_nothing_else() {
        let map = |pairs: &[(u8, u8)]| pairs.iter().copied().collect::<BTreeMap<_, _>>();
        let before = map(&[(1, 1), (2, 1), (4, 1), (6, 1)]);
        let after = map(&[(0, 1), (2, 1), (4, 2), (5, 1), (6, 1), (9, 1)]);
        let found: Vec<u8> = differences(&before, &after).copied().collect();
        assert_eq!(found, [0, 1, 4, 5, 9]);
        assert_eq!(differences(&after, &after).next(), None);
        assert_eq!(differences(&before, &map(&[])).count(), 4);
    }
}
