//! Writes what the plan says, while this replica leads. The only place that writes ConfigMaps and Secrets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt as _;
use kube::api::{DeleteParams, GetParams, PostParams};
use kube::core::request::Request;
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _};
use serde::de::IgnoredAny;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::objects::{self, Object, Owner};
use super::observed::{Entry, Published, is_ours};
use super::plan::{Plan, Write, plan};
use super::retries::{FIRST_PAUSE, Failures, Retries, forget_settled, note_failure};
use super::seen::{Found, Stored, take};
use super::signing::Signing;
use crate::api::NamespacedName;
use crate::cluster::published::{GATEWAY_LABEL, PUBLISHER, Part};
use crate::engine::Offers;
use crate::serve::Metrics;
use crate::watch::{Incoming, Seen, api_resource, follow, watch_config};
use crate::world::Kind;

/// How long one write may take. A leader that is cut off stops well before another begins.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many Gateways are written at a time, and how many objects of each.
const GATEWAYS_AT_ONCE: usize = 4;
const WRITES_AT_ONCE: usize = 4;

/// Everything the publisher's task owns.
pub(crate) struct Publisher {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) offers: watch::Receiver<Option<Arc<Offers>>>,
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) failures: watch::Sender<Failures>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) signing: Signing,
}

impl Publisher {
    /// Runs until there is nothing to wait for any more.
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
        // Whether anything that a plan looks at may be otherwise than at the last plan.
        let mut open = true;
        // Of signatures: it grows, whoever led before and whatever its clock said.
        let mut stamp = 0;
        loop {
            let next_try = retries.values().map(|retry| retry.at).min();
            tokio::select! {
                event = seen.recv() => match event {
                    Some((kind, event)) => open |= take(&mut published, &mut listed, kind, event),
                    None => return,
                },
                changed = self.offers.changed() => {
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
                () = until(next_try) => open = true,
            }
            while let Ok((kind, event)) = seen.try_recv() {
                open |= take(&mut published, &mut listed, kind, event);
            }
            if !open {
                continue;
            }
            let Some(offers) = self.offers.borrow_and_update().clone() else {
                continue;
            };
            if listed.len() < 2 || !*self.leading.borrow_and_update() {
                continue;
            }
            open = false;
            let now = Instant::now();
            let plans = plan(&published, &offers);
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
                    .is_none_or(|gateway| offers.contains_key(gateway))
            });
        }
    }

    fn watch(
        &self,
        kind: Kind,
        events: UnboundedSender<(&'static str, Seen<Found>)>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let api: Api<Incoming> = Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &api_resource(kind, "v1"),
        );
        let config = watch_config().labels(GATEWAY_LABEL);
        let metrics = Arc::clone(&self.metrics);
        let signing = self.signing.clone();
        async move {
            let kind = kind.as_str();
            let keep = |incoming: Incoming| {
                let version = incoming.version().parse().unwrap_or(0);
                (
                    incoming.name().name,
                    version,
                    Entry::of_seen(kind, &incoming, &signing),
                )
            };
            let take = |seen| events.send((kind, seen)).is_ok();
            let fail = |error: &watcher::Error| {
                metrics.watch_failed(kind);
                tracing::warn!(kind, %error, "the watch of what is published failed; it is started again");
            };
            loop {
                let watch = watcher(api.clone(), config.clone());
                if !follow(watch, keep, take, fail).await {
                    return;
                }
                tokio::time::sleep(FIRST_PAUSE).await;
            }
        }
    }

    /// Does the plan's steps, one after the other, until one fails. What a step signs is later than what the one before
    /// has signed.
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

    async fn send(
        &self,
        owner: Option<&Owner>,
        write: Write,
        stamp: u64,
    ) -> Result<Written, Refusal> {
        let written = match (owner, write) {
            (Some(owner), Write::Create(object)) => {
                match self.put(owner, &object, (Verb::Create, stamp)).await {
                    // It may be ours all the same: without its label the watch does not see it.
                    Err(kube::Error::Api(status)) if status.code == 409 => {
                        if !self.wrote(objects::kind(object.part), &object.name).await? {
                            return Err(Refusal::Foreign);
                        }
                        self.put(owner, &object, (Verb::Replace, stamp)).await
                    }
                    result => result,
                }
            }
            (Some(owner), Write::Replace(object)) => {
                match self.put(owner, &object, (Verb::Replace, stamp)).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {
                        self.put(owner, &object, (Verb::Create, stamp)).await
                    }
                    // What is immutable has other bytes under our name: somebody else's work. Nothing else is ever
                    // taken away to be replaced.
                    Err(kube::Error::Api(status))
                        if status.code == 422 && object.part == Part::Config =>
                    {
                        self.delete(objects::kind(object.part), &object.name)
                            .await?;
                        self.put(owner, &object, (Verb::Create, stamp)).await
                    }
                    result => result,
                }
            }
            (_, Write::Delete { kind, name }) => self.delete(kind, &name).await,
            // Nothing is planned for a Gateway that is gone but to delete.
            (None, Write::Create(_) | Write::Replace(_)) => Ok(Written::Nothing),
        };
        Ok(written?)
    }

    /// Whether we have written what is there.
    async fn wrote(&self, kind: &'static str, name: &str) -> kube::Result<bool> {
        let request = Request::new(self.url(kind))
            .get(name, &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        let there = self.client.request::<Incoming>(request).await?;
        Ok(is_ours(&there))
    }

    async fn put(
        &self,
        owner: &Owner,
        object: &Object,
        (verb, stamp): (Verb, u64),
    ) -> kube::Result<Written> {
        let kind = objects::kind(object.part);
        let signature = self.signing.sign(object, owner, stamp);
        let json = object.json(owner, &self.namespace, signature.as_deref());
        let body = serde_json::to_vec(&json).map_err(kube::Error::SerdeError)?;
        let request = Request::new(self.url(kind));
        let parameters = PostParams {
            field_manager: Some(PUBLISHER.to_owned()),
            ..PostParams::default()
        };
        let request = match verb {
            Verb::Create => request.create(&parameters, body),
            Verb::Replace => request.replace(&object.name, &parameters, body),
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.metrics.published(object.part.as_str(), verb.as_str());
        let stored: Stored = self.client.request(request).await?;
        let version = stored.metadata.resource_version.parse().unwrap_or(0);
        let seal = self.signing.written(object.part, stamp);
        let entry = Entry::of_written(object, owner, version, seal);
        Ok(Written::Put(object.name.clone(), Box::new(entry)))
    }

    async fn delete(&self, kind: &'static str, name: &str) -> kube::Result<Written> {
        let request = Request::new(self.url(kind))
            .delete(name, &DeleteParams::default())
            .map_err(kube::Error::BuildRequest)?;
        self.metrics.published(kind, "delete");
        match self.client.request::<IgnoredAny>(request).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
        Ok(Written::Deleted(kind, name.to_owned()))
    }

    fn url(&self, kind: &str) -> String {
        let kind = if kind == "Secret" {
            Kind::Secret
        } else {
            Kind::ConfigMap
        };
        Incoming::url_path(&api_resource(kind, "v1"), Some(&self.namespace))
    }
}

/// Why a write did nothing.
enum Refusal {
    /// The name is somebody else's.
    Foreign,
    Kube(kube::Error),
}

impl From<kube::Error> for Refusal {
    fn from(error: kube::Error) -> Self {
        Self::Kube(error)
    }
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Create,
    Replace,
}

impl Verb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
        }
    }
}

/// What came of a Gateway's plan.
struct Outcome {
    gateway: Option<NamespacedName>,
    written: Vec<Written>,
    failure: Option<String>,
}

/// What a write changed.
enum Written {
    Put(String, Box<Entry>),
    Deleted(&'static str, String),
    Nothing,
}

impl Written {
    fn note(self, published: &mut Published) {
        match self {
            Self::Put(name, entry) => {
                published.put(&name, *entry);
            }
            Self::Deleted(kind, name) => {
                published.remove(kind, &name, u64::MAX);
            }
            Self::Nothing => {}
        }
    }
}

/// Later than every stamp before, and the milliseconds since 1970 where that is later. A plan has three steps.
fn next_stamp(before: u64, now: SystemTime) -> u64 {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(0);
    now.max(before.saturating_add(3))
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
