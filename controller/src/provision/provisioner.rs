//! Carries out the plan while this replica is the leader. No other module writes these objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::request::Request;
use kube::{Api, Resource as _};
use serde_json::json;
use sesame_backoff::Backoff;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::abandoned;
use super::assigned::assigned;
use super::cache::{Cache, CacheEvent, WatchedKind, existing};
use super::kinds::{OwnedKey, OwnedKind, Purpose};
use super::plan::{OwnedPlan, OwnedWrite, lack, plan, record_problem, taken};
use super::upstream;
use crate::connection::answer;
use crate::publish::DesiredPublications;
use crate::replica::{Replica, replace};
use crate::retry::NextAttempt;
use crate::statuses::{
    AddressesByGateway, HostsByGateway, ProvisionReport, ServiceRequests, SettingsByGateway,
};
use crate::watch::{ObjectWatch, Received, watch_config, watched_apis};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::Kind;
use sesame_published::names::PUBLISHER;

const TIMEOUT: Duration = Duration::from_secs(5);
const PAUSES: Backoff = Backoff::new(PAUSE, Duration::from_secs(60));
/// Backoff after conflicts on an object that keeps changing, such as a DaemonSet during a rollout.
const CONFLICT_PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
/// Delay before deleting Pods, so that all nodes first stop routing to them.
const POD_DELETION_DELAY: Duration = Duration::from_secs(5);
/// Delay before retrying a kind that the API server does not serve yet.
const PAUSE: Duration = Duration::from_secs(5);
const GATEWAY_VERSION: &str = "gateway.networking.k8s.io/v1";

pub(crate) struct Provisioner {
    pub(crate) replica: Replica,
    pub(crate) desired: watch::Receiver<Option<Arc<DesiredPublications>>>,
    pub(crate) settings: watch::Receiver<SettingsByGateway>,
    pub(crate) services: watch::Receiver<ServiceRequests>,
    pub(crate) hosts: watch::Receiver<HostsByGateway>,
    pub(crate) report: watch::Sender<ProvisionReport>,
    pub(crate) addresses: watch::Sender<AddressesByGateway>,
}

struct FailedWrite {
    retry: NextAttempt,
    /// `None` if the Gateway's owner cannot fix the problem.
    problem: Option<(NamespacedName, String)>,
}

#[derive(Debug)]
enum WriteFailure {
    Taken(String),
    Refused(String),
    Changed,
    Other(String),
}

impl From<kube::Error> for WriteFailure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 409 => Self::Changed,
            kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => {
                Self::Refused(status.message.clone())
            }
            error => Self::Other(error.to_string()),
        }
    }
}

impl Provisioner {
    pub(crate) async fn run(mut self) {
        let (events, mut seen) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        for kind in WatchedKind::always() {
            watches.spawn(self.watch(kind, events.clone()));
        }
        let mut cache = Cache::default();
        let inventory = &mut cache.inventory;
        inventory.namespace.clone_from(&self.replica.namespace);
        inventory.fleet_spans.clone_from(&self.replica.fleet_spans);
        inventory.unwatched_home = !self.replica.watched.holds(&self.replica.namespace);
        let controller = &self.replica.controller_name;
        inventory.controller.clone_from(controller);
        let mut failed: BTreeMap<OwnedKey, FailedWrite> = BTreeMap::new();
        let mut reported = BTreeSet::new();
        loop {
            let leads = *self.replica.leading.borrow();
            let next_try = failed.values().map(|failed| failed.retry.at).min();
            tokio::select! {
                event = seen.recv() => match event {
                    Some(event) => cache.apply(event),
                    None => return,
                },
                changed = self.desired.changed() => if changed.is_err() { return },
                changed = self.settings.changed() => if changed.is_err() { return },
                changed = self.services.changed() => if changed.is_err() { return },
                changed = self.hosts.changed() => if changed.is_err() { return },
                changed = self.replica.leading.changed() => if changed.is_err() { return },
                Some(()) = OptionFuture::from(next_try.filter(|_| leads).map(sleep_until)) => {}
            }
            while let Ok(event) = seen.try_recv() {
                cache.apply(event);
            }
            let Some(desired) = self.desired.borrow_and_update().clone() else {
                continue;
            };
            let settings = Arc::clone(&self.settings.borrow_and_update());
            if !cache.with_routes && (cache.has_upstream() || upstream::is_wanted(&settings)) {
                cache.with_routes = true;
                for kind in upstream::ROUTES.map(WatchedKind::Owned) {
                    watches.spawn(self.watch(kind, events.clone()));
                }
            }
            cache.imply(&settings);
            if !cache.is_complete() {
                continue;
            }
            let hosts = self.hosts.borrow_and_update().clone();
            // The engine updates requests before settings, so read them in the opposite order.
            cache.update(&self.services.borrow_and_update(), &hosts);
            let leads = *self.replica.leading.borrow_and_update();
            // Wait for the reports: without them, the plan would remove all endpoints.
            let mut report = ProvisionReport::default();
            if leads {
                abandoned::report(&cache.inventory, &mut reported);
            }
            if leads && hosts.is_some() {
                let ours = desired.keys();
                let carried_out = self.carry_out(ours, &settings, &mut cache, &mut failed);
                report = carried_out.await;
                replace(&self.report, report.clone());
            }
            let addresses = assigned(&cache.inventory, &settings, &report);
            replace(&self.addresses, Some(addresses));
        }
    }

    async fn carry_out<'a>(
        &self,
        ours: impl Iterator<Item = &'a NamespacedName>,
        settings: &SettingsByGateway,
        cache: &mut Cache,
        failed: &mut BTreeMap<OwnedKey, FailedWrite>,
    ) -> ProvisionReport {
        let OwnedPlan { writes, mut report } = plan(&cache.inventory, ours, settings);
        let planned: BTreeSet<&OwnedKey> = writes.iter().map(OwnedWrite::key).collect();
        failed.retain(|key, _| planned.contains(key));
        let now = Instant::now();
        for write in writes {
            let key = write.key().clone();
            let gateway = write.gateway().cloned();
            if write.ends_pods() {
                failed.entry(key.clone()).or_insert_with(|| FailedWrite {
                    retry: NextAttempt::soon(POD_DELETION_DELAY, PAUSES, now),
                    problem: None,
                });
            }
            let waits = failed.get(&key).is_some_and(|failed| failed.retry.at > now);
            if waits || !*self.replica.leading.borrow() {
                continue;
            }
            let Err(failure) = self.write(write, cache).await else {
                failed.remove(&key);
                continue;
            };
            let before = failed.get(&key).map(|failed| &failed.retry);
            failed.insert(key.clone(), failed_write(&key, gateway, failure, before));
        }
        for (key, FailedWrite { problem, .. }) in failed {
            if let Some((gateway, why)) = problem.clone() {
                record_problem(&mut report, key.0, gateway, why);
            }
        }
        report
    }

    fn watch(
        &self,
        watched: WatchedKind,
        events: UnboundedSender<CacheEvent>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (apis, config) = match watched {
            WatchedKind::Gateway => (
                watched_apis(&self.replica, Kind::Gateway, GATEWAY_VERSION),
                watch_config(),
            ),
            WatchedKind::GatewayClass => (
                watched_apis(&self.replica, Kind::GatewayClass, GATEWAY_VERSION),
                watch_config(),
            ),
            WatchedKind::Owned(kind) if kind.is_remote() => {
                let namespace = &self.replica.namespace;
                let client = self.replica.client.clone();
                let api = Api::namespaced_with(client, namespace, &kind.resource());
                (vec![api], watch_config().labels(kind.label()))
            }
            WatchedKind::Owned(kind) => (self.apis(kind), watch_config().labels(kind.label())),
        };
        let watch = ObjectWatch::for_apis(&self.replica, watched.as_str(), apis, config);
        let keep = std::convert::identity;
        watch.run(PAUSE, keep, move |event: Result<_, _>| {
            events.send((watched, event)).is_ok()
        })
    }

    fn apis(&self, kind: OwnedKind) -> Vec<Api<Received>> {
        let resource = kind.resource();
        let client = || self.replica.client.clone();
        let all = || Api::all_with(client(), &resource);
        let of = |namespace: &str| Api::namespaced_with(client(), namespace, &resource);
        self.replica.watched.each(all, of)
    }

    async fn write(&self, write: OwnedWrite, cache: &mut Cache) -> Result<(), WriteFailure> {
        let key = write.key().clone();
        let created = matches!(write, OwnedWrite::Create(_));
        match answer(TIMEOUT, self.send(write)).await {
            Ok(Some(stored)) => cache.put_object(key.0, &stored),
            Ok(None) => {
                cache.inventory.objects.remove(&key);
            }
            Err(kube::Error::Api(status)) if created && status.reason == "AlreadyExists" => {
                let there = answer(TIMEOUT, self.read(&key)).await?;
                // Either the watch has not delivered our object yet, or the object has lost its
                // label.
                let ours = there.filter(|there| {
                    let there = existing(key.0, there);
                    cache
                        .inventory
                        .bases()
                        .any(|basis| there.is_owned_by(basis))
                });
                let Some(ours) = ours else {
                    return Err(WriteFailure::Taken(taken(&key, None)));
                };
                cache.put_object(key.0, &ours);
                return Err(WriteFailure::Changed);
            }
            Err(kube::Error::Api(status)) if !created && status.code == 404 => {
                cache.inventory.objects.remove(&key);
                return Err(WriteFailure::Changed);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn read(&self, (kind, name): &OwnedKey) -> kube::Result<Option<Received>> {
        let client = self.replica.client.clone();
        let api: Api<Received> = Api::namespaced_with(client, &name.namespace, &kind.resource());
        api.get_opt(&name.name).await
    }

    async fn send(&self, write: OwnedWrite) -> kube::Result<Option<Received>> {
        let (kind, NamespacedName { namespace, name }) = write.key().clone();
        let request = Request::new(<Received>::url_path(&kind.resource(), Some(&namespace)));
        let parameters = PostParams {
            field_manager: Some(PUBLISHER.to_owned()),
            ..PostParams::default()
        };
        let encode = |value| serde_json::to_vec(value).map_err(kube::Error::SerdeError);
        let (verb, request) = match &write {
            OwnedWrite::Create(object) => (
                "create",
                request.create(&parameters, encode(&object.value)?),
            ),
            OwnedWrite::Replace { object, version } => {
                let mut value = object.value.clone();
                value["metadata"]["resourceVersion"] = json!(version);
                (
                    "replace",
                    request.replace(&name, &parameters, encode(&value)?),
                )
            }
            OwnedWrite::Delete { version, .. } => {
                let parameters = DeleteParams::default().preconditions(Preconditions {
                    resource_version: Some(version.clone()),
                    uid: None,
                });
                ("delete", request.delete(&name, &parameters))
            }
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.replica.metrics.published(kind.as_str(), verb);
        tracing::debug!(
            kind = kind.as_str(),
            namespace,
            name,
            verb,
            "wrote an object"
        );
        let deleted = matches!(write, OwnedWrite::Delete { .. });
        match self.replica.client.request::<Received>(request).await {
            Ok(stored) => Ok((!deleted).then_some(stored)),
            Err(kube::Error::Api(status)) if deleted && status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the next attempt, and the message to report until then.
fn failed_write(
    key: &OwnedKey,
    gateway: Option<NamespacedName>,
    failure: WriteFailure,
    before: Option<&NextAttempt>,
) -> FailedWrite {
    let (kind, name) = key;
    let now = Instant::now();
    let (why, problem) = match failure {
        WriteFailure::Changed => {
            tracing::debug!(kind = kind.as_str(), %name, "the object was changed concurrently; retrying");
            let retry = NextAttempt::after(before, CONFLICT_PAUSES, now);
            return FailedWrite {
                retry,
                problem: None,
            };
        }
        WriteFailure::Taken(why) => (why.clone(), Some(why)),
        WriteFailure::Refused(why) if kind.purpose() != Purpose::Service => {
            let lack = lack(*kind);
            let mut problem = format!("{lack}: {kind} {name} cannot be written: {why}");
            if kind.purpose() == Purpose::Upstream && why.contains("forbidden") {
                problem
                    .push_str("; the required permissions are in controller/deploy/upstreams.yaml");
            }
            (why, Some(problem))
        }
        WriteFailure::Refused(why) | WriteFailure::Other(why) => (why, None),
    };
    tracing::warn!(kind = kind.as_str(), %name, "cannot write the object; retrying: {why}");
    FailedWrite {
        retry: NextAttempt::after(before, PAUSES, now),
        problem: gateway.zip(problem),
    }
}
