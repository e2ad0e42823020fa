//! Carries out the plan while this replica leads. The only place that writes ConfigMaps and Secrets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt as _;
use futures::future::OptionFuture;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::desired::DesiredPublications;
use super::objects::Owner;
use super::observed::{Entry, Published};
use super::plan::{Plan, Write, plan};
use super::retries::{Retries, forget_settled, note_failure};
use super::seen::{Found, take};
use super::signing::Signing;
use super::write::{Refusal, Written};
use crate::serve::Metrics;
use crate::statuses::GatewayProblems;
use crate::watch::{Received, WatchEvent, api_resource, follow, watch_config};
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::world::Kind;
use sesame_published::names::GATEWAY_LABEL;

/// Time that one write may take. A leader that is cut off stops well before another begins.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a watch of a kind that was not served is started again.
const PAUSE: Duration = Duration::from_millis(250);
/// Number of Gateways that are written at a time, and of objects of each.
const GATEWAYS_AT_ONCE: usize = 4;
const WRITES_AT_ONCE: usize = 4;

/// Everything the publisher's task owns.
pub(crate) struct Publisher {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) desired: watch::Receiver<Option<Arc<DesiredPublications>>>,
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) failures: watch::Sender<GatewayProblems>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) signing: Signing,
}

impl Publisher {
    /// Runs until the senders of its channels are gone.
    pub(crate) async fn run(mut self) {
        let (events, mut seen) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        for kind in [Kind::ConfigMap, Kind::Secret] {
            watches.spawn(self.watch(kind, events.clone()));
        }
        drop(events);
        let mut published = Published::default();
        let mut listed = BTreeSet::new();
        let mut retries = Retries::new();
        // True if anything that a plan looks at may have changed since the last plan.
        let mut open = true;
        // Stamp of signatures, which grows, whoever led before and whatever its clock said.
        let mut stamp = 0;
        loop {
            let next_try = retries.values().map(|retry| retry.at).min();
            tokio::select! {
                event = seen.recv() => match event {
                    Some((kind, event)) => open |= take(&mut published, &mut listed, kind, event),
                    None => return,
                },
                changed = self.desired.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    open = true;
                }
                changed = self.leading.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    open = true;
                }
                Some(()) = OptionFuture::from(next_try.map(sleep_until)) => open = true,
            }
            while let Ok((kind, event)) = seen.try_recv() {
                open |= take(&mut published, &mut listed, kind, event);
            }
            if !open {
                continue;
            }
            let Some(desired) = self.desired.borrow_and_update().clone() else {
                continue;
            };
            if listed.len() < 2 || !*self.leading.borrow_and_update() {
                continue;
            }
            open = false;
            let now = Instant::now();
            let plans = plan(&published, &desired);
            forget_settled(&mut retries, &self.failures, &plans);
            let plans = plans.into_iter().filter(|plan| {
                let name = plan.owner.as_ref().map(|owner| owner.gateway.clone());
                retries.get(&name).is_none_or(|retry| retry.at <= now)
            });
            stamp = next_stamp(stamp.max(published.latest_stamp()), SystemTime::now());
            let this = &self;
            let outcomes: Vec<Outcome> = futures::stream::iter(plans)
                .map(|plan| this.carry_out(plan, stamp))
                .buffer_unordered(GATEWAYS_AT_ONCE)
                .collect()
                .await;
            for outcome in outcomes {
                for written in outcome.written {
                    written.note(&mut published);
                }
                note_failure(
                    &mut retries,
                    &self.failures,
                    outcome.gateway,
                    outcome.failure,
                );
            }
            retries.retain(|gateway, _| {
                gateway
                    .as_ref()
                    .is_none_or(|gateway| desired.contains_key(gateway))
            });
        }
    }

    fn watch(
        &self,
        kind: Kind,
        events: UnboundedSender<(&'static str, WatchEvent<Found>)>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let api: Api<Received> = Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &api_resource(kind, "v1"),
        );
        let config = watch_config().labels(GATEWAY_LABEL);
        let metrics = Arc::clone(&self.metrics);
        let signing = self.signing.clone();
        async move {
            let kind = kind.as_str();
            let keep = |received: Received| {
                let version = received.version().parse().unwrap_or(0);
                (
                    received.name().name,
                    version,
                    Entry::of_seen(kind, &received, &signing),
                )
            };
            let take = |seen| events.send((kind, seen)).is_ok();
            let fail = |error: &watcher::Error| {
                metrics.watch_failed(kind);
                tracing::warn!(kind, %error, "a watch of published objects failed; it is started again");
            };
            loop {
                let watch = watcher(api.clone(), config.clone());
                if !follow(watch, keep, take, fail).await {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Carries out the plan's steps, one after another, until one fails. Each step signs with a later stamp than the one
    /// before.
    async fn carry_out(&self, plan: Plan, first: u64) -> Outcome {
        let Plan { owner, steps } = plan;
        let mut outcome = Outcome {
            gateway: owner.as_ref().map(|owner| owner.gateway.clone()),
            written: Vec::new(),
            failure: None,
        };
        let count: usize = steps.iter().map(Vec::len).sum();
        for (stamp, step) in (first..).zip(steps) {
            let results: Vec<Result<Written, String>> = futures::stream::iter(step)
                .map(|write| self.write(owner.as_ref(), write, stamp))
                .buffer_unordered(WRITES_AT_ONCE)
                .collect()
                .await;
            for result in results {
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
                "a Gateway that is gone or no longer ours is withdrawn"
            );
        }
        outcome
    }

    async fn write(
        &self,
        owner: Option<&Owner>,
        write: Write,
        stamp: u64,
    ) -> Result<Written, String> {
        let name = match &write {
            Write::Create(object) | Write::Replace(object) => object.name.clone(),
            Write::Delete { name, .. } => name.clone(),
        };
        if !*self.leading.borrow() {
            return Err(format!("{name}: another replica leads now"));
        }
        let write = self.send(owner, write, stamp);
        match tokio::time::timeout(TIMEOUT, write).await {
            Ok(Ok(written)) => Ok(written),
            Ok(Err(Refusal::Foreign)) => Err(format!(
                "{name}: there is one that this controller has not written; delete it"
            )),
            Ok(Err(Refusal::Kube(kube::Error::Api(status)))) => Err(format!(
                "{name}: the API server says {} {}: {}",
                status.code, status.reason, status.message
            )),
            Ok(Err(Refusal::Kube(error))) => Err(format!("{name}: {error}")),
            Err(_) => Err(format!("{name}: no answer in {TIMEOUT:?}")),
        }
    }
}

/// Outcome of a Gateway's plan.
struct Outcome {
    gateway: Option<NamespacedName>,
    written: Vec<Written>,
    failure: Option<String>,
}

/// Returns a stamp that is later than all before: the milliseconds since 1970, or more. A plan has three steps.
fn next_stamp(before: u64, now: SystemTime) -> u64 {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(0);
    now.max(before.saturating_add(3))
}
