//! Carries out the plan while this replica is the leader.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt as _;
use futures::future::OptionFuture;
use jiff::Timestamp;
use kube::Api;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::desired::{DesiredPublications, revisions};
use super::objects::PublicationOwner;
use super::observed::{PublishedObject, PublishedObjects};
use super::plan::{GatewayPlan, ObjectWrite, plan};
use super::retries::{Retries, forget_settled, record_failure};
use super::rollouts::{RolloutHosts, RolloutNotes, StagedPublications, stage};
use super::seen::{FoundObject, apply};
use super::signing::Signing;
use super::write::{WriteRefusal, Written};
use crate::changes::WrittenStep;
use crate::replica::{Replica, replace};
use crate::statuses::GatewayProblems;
use crate::watch::{ObjectWatch, Received, WatchEvent, api_resource, watch_config};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::Kind;
use sesame_published::names::{GATEWAY_LABEL, Part};

/// Timeout for writes. A disconnected leader must stop writing well before another replica starts.
const TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(250);
/// Limits of the time between decisions about a rollout.
const MIN_WAIT: Duration = Duration::from_millis(200);
const MAX_WAIT: Duration = Duration::from_secs(30);
const GATEWAYS_AT_ONCE: usize = 4;
const WRITES_AT_ONCE: usize = 4;

pub(crate) struct SnapshotPublisher {
    pub(crate) replica: Replica,
    pub(crate) desired: watch::Receiver<Option<Arc<DesiredPublications>>>,
    pub(crate) failures: watch::Sender<GatewayProblems>,
    pub(crate) signing: Signing,
    pub(crate) rollout_hosts: watch::Receiver<RolloutHosts>,
    pub(crate) rollout_notes: watch::Sender<RolloutNotes>,
}

impl SnapshotPublisher {
    pub(crate) async fn run(mut self) {
        let (events, mut seen) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        for kind in [Kind::ConfigMap, Kind::Secret] {
            watches.spawn(self.watch(kind, events.clone()));
        }
        drop(events);
        let mut published = PublishedObjects::default();
        let mut listed = BTreeSet::new();
        let mut retries = Retries::new();
        let mut open = true;
        // Stamps increase even if leaders' clocks differ.
        let mut stamp = 0;
        let mut rollout: Option<Instant> = None;
        loop {
            // Ignore retries on a follower: without writes, a due retry would stay due forever.
            let leads = *self.replica.leading.borrow();
            let next_try = retries.values().map(|retry| retry.at).min();
            tokio::select! {
                event = seen.recv() => match event {
                    Some((kind, event)) => open |= apply(&mut published, &mut listed, kind, event),
                    None => return,
                },
                changed = self.desired.changed() => match changed {
                    Ok(()) => open = true,
                    Err(_) => return,
                },
                changed = self.replica.leading.changed() => match changed {
                    Ok(()) => open = true,
                    Err(_) => return,
                },
                changed = self.rollout_hosts.changed() => match changed {
                    Ok(()) => open = true,
                    Err(_) => return,
                },
                Some(()) = OptionFuture::from(next_try.filter(|_| leads).map(sleep_until)) => open = true,
                Some(()) = OptionFuture::from(rollout.filter(|_| leads).map(sleep_until)) => open = true,
            }
            while let Ok((kind, event)) = seen.try_recv() {
                open |= apply(&mut published, &mut listed, kind, event);
            }
            if !open {
                continue;
            }
            let Some(desired) = self.desired.borrow_and_update().clone() else {
                continue;
            };
            if listed.len() < 2 || !*self.replica.leading.borrow_and_update() {
                continue;
            }
            open = false;
            stamp = next_stamp(stamp.max(published.latest_stamp()), SystemTime::now());
            let hosts = self.rollout_hosts.borrow_and_update().clone();
            let staged = stage(&desired, &published, &hosts, Timestamp::now());
            rollout = staged.wake.map(due);
            self.publish(&staged.desired, &mut published, &mut retries, stamp)
                .await;
            self.report_rollouts(staged);
        }
    }

    fn report_rollouts(&self, staged: StagedPublications) {
        replace(&self.rollout_notes, staged.notes);
        for gateway in staged.failed {
            tracing::error!(%gateway, "the state of the rollout does not fit into the manifest, so the revision is not published; release fewer hosts by name");
        }
    }

    /// The first step of each plan signs with `stamp`, and later steps with later stamps.
    async fn publish(
        &self,
        desired: &DesiredPublications,
        published: &mut PublishedObjects,
        retries: &mut Retries,
        stamp: u64,
    ) {
        let now = Instant::now();
        let plans = plan(published, desired);
        forget_settled(retries, &self.failures, &plans);
        let changes = &self.replica.changes;
        let mut under_way = changes.take(|| revisions(desired));
        let planned: BTreeSet<&NamespacedName> = plans
            .iter()
            .filter_map(|plan| plan.owner.as_ref())
            .map(|owner| &owner.gateway)
            .collect();
        // Drop Gateways whose revisions are already published.
        under_way.retain(|name, _| planned.contains(name));
        let plans = plans.into_iter().filter(|plan| {
            let name = plan.owner.as_ref().map(|owner| owner.gateway.clone());
            retries.get(&name).is_none_or(|retry| retry.at <= now)
        });
        let outcomes: Vec<PlanOutcome> = futures::stream::iter(plans)
            .map(|plan| self.carry_out(plan, stamp))
            .buffer_unordered(GATEWAYS_AT_ONCE)
            .collect()
            .await;
        for outcome in outcomes {
            let gateway = outcome.gateway.as_ref();
            if let (Some(gateway), Some((version, steps))) = (gateway, &outcome.manifest)
                && let Some(change) = under_way.remove(gateway)
            {
                changes.published(gateway, &change, *version, steps);
            }
            for written in outcome.written {
                written.record(published);
            }
            record_failure(retries, &self.failures, outcome.gateway, outcome.failure);
        }
        for (gateway, change) in under_way {
            changes.give_back(&gateway, change);
        }
        retries.retain(|gateway, _| {
            gateway
                .as_ref()
                .is_none_or(|gateway| desired.contains_key(gateway))
        });
    }

    fn watch(
        &self,
        kind: Kind,
        events: UnboundedSender<(&'static str, WatchEvent<FoundObject>)>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (replica, resource) = (&self.replica, api_resource(kind, "v1"));
        let api = Api::namespaced_with(replica.client.clone(), &replica.namespace, &resource);
        let config = watch_config().labels(GATEWAY_LABEL);
        let watch = ObjectWatch::new(replica, kind.as_str(), api, config);
        let signing = self.signing.clone();
        let kind = kind.as_str();
        let keep = move |received: Received| {
            let version = received.version().parse().unwrap_or(0);
            let entry = PublishedObject::from_received(kind, &received, &signing);
            (received.name().name, version, entry)
        };
        watch.run(PAUSE, keep, move |event: Result<_, _>| {
            event.map_or(true, |event| events.send((kind, event)).is_ok())
        })
    }

    /// Stops at the first failure. Each step signs with a later stamp.
    async fn carry_out(&self, plan: GatewayPlan, first: u64) -> PlanOutcome {
        let GatewayPlan { owner, steps } = plan;
        let mut outcome = PlanOutcome {
            gateway: owner.as_ref().map(|owner| owner.gateway.clone()),
            written: Vec::new(),
            manifest: None,
            failure: None,
        };
        let mut written = Vec::new();
        let count: usize = steps.iter().map(Vec::len).sum();
        for (stamp, step) in (first..).zip(steps) {
            let (name, writes, start) = (step_name(&step), step.len(), SystemTime::now());
            let results: Vec<Result<Written, String>> = futures::stream::iter(step)
                .map(|write| self.write(owner.as_ref(), write, stamp))
                .buffer_unordered(WRITES_AT_ONCE)
                .collect()
                .await;
            written.push(WrittenStep {
                name,
                writes,
                times: (start, SystemTime::now()),
            });
            for result in results {
                if let Ok(Written::Put(_, entry)) = &result
                    && entry.part == Part::Manifest
                {
                    outcome.manifest = Some((entry.version, written.clone()));
                }
                match result {
                    Ok(written) => outcome.written.push(written),
                    Err(why) => outcome.failure = Some(why),
                }
            }
            if outcome.failure.is_some() {
                return outcome;
            }
        }
        if let Some(gateway) = &outcome.gateway {
            tracing::info!(%gateway, writes = count, "published");
        } else {
            tracing::info!(
                writes = count,
                "withdrew a Gateway that was deleted or is no longer served here"
            );
        }
        outcome
    }

    async fn write(
        &self,
        owner: Option<&PublicationOwner>,
        write: ObjectWrite,
        stamp: u64,
    ) -> Result<Written, String> {
        let name = match &write {
            ObjectWrite::Create(object) | ObjectWrite::Replace(object) => object.name.clone(),
            ObjectWrite::Delete { name, .. } => name.clone(),
        };
        if !*self.replica.leading.borrow() {
            return Err(format!("{name}: another replica leads now"));
        }
        let write = self.send(owner, write, stamp);
        match tokio::time::timeout(TIMEOUT, write).await {
            Ok(Ok(written)) => Ok(written),
            Ok(Err(WriteRefusal::Foreign)) => Err(format!(
                "{name} already exists and was not created by this controller; delete it"
            )),
            Ok(Err(WriteRefusal::Kube(kube::Error::Api(status)))) => Err(format!(
                "{name}: the API server returned {} {}: {}",
                status.code, status.reason, status.message
            )),
            Ok(Err(WriteRefusal::Kube(error))) => Err(format!("{name}: {error}")),
            Err(_) => Err(format!("{name}: no response within {TIMEOUT:?}")),
        }
    }
}

struct PlanOutcome {
    gateway: Option<NamespacedName>,
    written: Vec<Written>,
    /// Manifest version, and the steps up to the manifest write. `None` without a current manifest.
    manifest: Option<(u64, Vec<WrittenStep>)>,
    failure: Option<String>,
}

fn step_name(step: &[ObjectWrite]) -> &'static str {
    let is_manifest = |write: &ObjectWrite| match write {
        ObjectWrite::Create(object) | ObjectWrite::Replace(object) => object.part == Part::Manifest,
        ObjectWrite::Delete { .. } => false,
    };
    if step.iter().any(is_manifest) {
        "write manifest"
    } else {
        "write parts"
    }
}

/// Returns when to decide again. The clock may be adjusted, so never sleep for long.
fn due(wake: Timestamp) -> Instant {
    let left = wake.duration_since(Timestamp::now());
    let left = Duration::try_from(left).unwrap_or_default();
    Instant::now() + left.clamp(MIN_WAIT, MAX_WAIT)
}

/// Returns a stamp that exceeds all previous ones and is at least the Unix time in milliseconds.
fn next_stamp(before: u64, now: SystemTime) -> u64 {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(0);
    now.max(before.saturating_add(3))
}
