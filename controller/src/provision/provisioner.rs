//! Carries out the plan while this replica leads. The only place that writes Services and EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::request::Request;
use kube::{Api, Resource as _};
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::Basis;
use super::assigned::assigned;
use super::objects::{Key, owner};
use super::plan::{ExistingObject, Inventory, ServiceWrite, plan, taken};
use crate::connection::answer;
use crate::publish::DesiredPublications;
use crate::replica::{Replica, replace};
use crate::retry::{NextAttempt, Pauses};
use crate::statuses::{
    AddressesByGateway, GatewayProblems, HostsByGateway, ServiceRequests, SettingsByGateway,
};
use crate::watch::{ObjectWatch, Received, WatchEvent, api_resource, watch_config, watched_apis};
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::world::Kind;
use sesame_published::names::GATEWAY_LABEL;

/// Time that one write may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between attempts at one write.
const PAUSES: Pauses = Pauses::new(PAUSE, Duration::from_secs(60));
/// Pause before a watch of a kind that was not served is started again.
const PAUSE: Duration = Duration::from_secs(5);
/// Number of UIDs of Gateways that are gone that are remembered.
const MAX_GONE: usize = 1024;
/// Kinds that are watched.
const KINDS: [Kind; 3] = [Kind::Gateway, Kind::Service, Kind::EndpointSlice];

/// Everything the provisioner's task owns.
pub(crate) struct Provisioner {
    pub(crate) replica: Replica,
    pub(crate) desired: watch::Receiver<Option<Arc<DesiredPublications>>>,
    pub(crate) settings: watch::Receiver<SettingsByGateway>,
    pub(crate) services: watch::Receiver<ServiceRequests>,
    /// Hosts that serve each Gateway, by address.
    pub(crate) hosts: watch::Receiver<HostsByGateway>,
    pub(crate) without_service: watch::Sender<GatewayProblems>,
    pub(crate) addresses: watch::Sender<AddressesByGateway>,
}

/// Objects that the watches have seen.
#[derive(Default)]
struct Cache {
    listed: BTreeSet<Kind>,
    inventory: Inventory,
}

/// A write that failed.
struct FailedWrite {
    retry: NextAttempt,
    /// The Gateway that has no Service because the name is somebody else's, and the reason.
    taken: Option<(NamespacedName, String)>,
}

/// Reason why a write did nothing.
struct WriteFailure {
    /// True if the name is taken by somebody else's object.
    taken: bool,
    why: String,
}

impl From<kube::Error> for WriteFailure {
    fn from(error: kube::Error) -> Self {
        let why = error.to_string();
        Self { taken: false, why }
    }
}

impl Provisioner {
    /// Runs until the senders of its channels are gone.
    pub(crate) async fn run(mut self) {
        let (events, mut seen) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        for kind in KINDS {
            watches.spawn(self.watch(kind, events.clone()));
        }
        drop(events);
        let mut cache = Cache::default();
        let mut failed: BTreeMap<Key, FailedWrite> = BTreeMap::new();
        loop {
            let leads = *self.replica.leading.borrow();
            let next_try = failed.values().map(|failed| failed.retry.at).min();
            tokio::select! {
                event = seen.recv() => match event {
                    Some((kind, event)) => cache.take(kind, event),
                    None => return,
                },
                changed = self.desired.changed() => if changed.is_err() { return },
                changed = self.settings.changed() => if changed.is_err() { return },
                changed = self.services.changed() => if changed.is_err() { return },
                changed = self.hosts.changed() => if changed.is_err() { return },
                changed = self.replica.leading.changed() => if changed.is_err() { return },
                Some(()) = OptionFuture::from(next_try.filter(|_| leads).map(sleep_until)) => {}
            }
            while let Ok((kind, event)) = seen.try_recv() {
                cache.take(kind, event);
            }
            let Some(desired) = self.desired.borrow_and_update().clone() else {
                continue;
            };
            if cache.listed.len() < KINDS.len() {
                continue;
            }
            let settings = Arc::clone(&self.settings.borrow_and_update());
            let hosts = self.hosts.borrow_and_update().clone();
            // Read after the settings: there are wishes of whatever has settings.
            cache.tell(&self.services.borrow_and_update(), &hosts);
            let leads = *self.replica.leading.borrow_and_update();
            // Before the reports are known, all endpoints would go.
            let mut without_service = GatewayProblems::new();
            if leads && hosts.is_some() {
                let ours = desired.keys();
                let carried_out = self.carry_out(ours, &settings, &mut cache, &mut failed);
                without_service = carried_out.await;
                replace(&self.without_service, without_service.clone());
            }
            let addresses = assigned(&cache.inventory, &settings, &without_service);
            replace(&self.addresses, Some(addresses));
        }
    }

    /// Plans, and carries out the writes that are due; returns the Gateways that have no Service.
    async fn carry_out<'a>(
        &self,
        ours: impl Iterator<Item = &'a NamespacedName>,
        settings: &SettingsByGateway,
        cache: &mut Cache,
        failed: &mut BTreeMap<Key, FailedWrite>,
    ) -> GatewayProblems {
        let (writes, mut without_service) = plan(&cache.inventory, ours, settings);
        let planned: BTreeSet<&Key> = writes.iter().map(ServiceWrite::key).collect();
        failed.retain(|key, _| planned.contains(key));
        let now = Instant::now();
        for write in writes {
            let key = write.key().clone();
            let gateway = write.gateway().cloned();
            let waits = failed.get(&key).is_some_and(|failed| failed.retry.at > now);
            if waits || !*self.replica.leading.borrow() {
                continue;
            }
            let Err(WriteFailure { taken, why }) = self.write(write, cache).await else {
                failed.remove(&key);
                continue;
            };
            let (kind, name) = &key;
            tracing::warn!(kind = kind.as_str(), %name, "cannot be written and is tried again: {why}");
            let before = failed.get(&key).map(|failed| &failed.retry);
            let retry = NextAttempt::after(before, &PAUSES, Instant::now());
            let taken = gateway.filter(|_| taken).map(|gateway| (gateway, why));
            failed.insert(key, FailedWrite { retry, taken });
        }
        without_service.extend(failed.values().filter_map(|failed| failed.taken.clone()));
        without_service
    }

    fn watch(
        &self,
        kind: Kind,
        events: UnboundedSender<(Kind, WatchEvent<Received>)>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let apis = watched_apis(&self.replica, kind, api_version(kind));
        let config = match kind {
            Kind::Gateway => watch_config(),
            _ => watch_config().labels(GATEWAY_LABEL),
        };
        let watch = ObjectWatch::of_all(&self.replica, kind.as_str(), apis, config);
        let keep = std::convert::identity;
        watch.run(PAUSE, keep, move |event: Result<_, _>| {
            event.map_or(true, |event| events.send((kind, event)).is_ok())
        })
    }

    /// Carries out a write, and notes the object as it is stored then.
    async fn write(&self, write: ServiceWrite, cache: &mut Cache) -> Result<(), WriteFailure> {
        let key = write.key().clone();
        let created = matches!(write, ServiceWrite::Create(_));
        match answer(TIMEOUT, self.send(write)).await {
            Ok(Some(stored)) => cache.put(key.0, &stored),
            Ok(None) => {
                cache.inventory.objects.remove(&key);
            }
            Err(kube::Error::Api(status)) if created && status.reason == "AlreadyExists" => {
                let there = answer(TIMEOUT, self.read(&key)).await?;
                // An object of ours that lost its label is mended by the next plan.
                let gateways = cache.inventory.gateways.values();
                let ours = there.filter(|there| {
                    let mut uids = gateways.map(|basis| basis.uid.as_str());
                    owner(there.value()).is_some_and(|uid| uids.any(|known| known == uid))
                });
                let Some(ours) = ours else {
                    let why = taken(&key, None);
                    return Err(WriteFailure { taken: true, why });
                };
                cache.put(key.0, &ours);
                let why = "it had lost its label".to_owned();
                return Err(WriteFailure { taken: false, why });
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn read(&self, (kind, name): &Key) -> kube::Result<Option<Received>> {
        let resource = api_resource(*kind, api_version(*kind));
        let api: Api<Received> =
            Api::namespaced_with(self.replica.client.clone(), &name.namespace, &resource);
        api.get_opt(&name.name).await
    }

    async fn send(&self, write: ServiceWrite) -> kube::Result<Option<Received>> {
        let (kind, NamespacedName { namespace, name }) = write.key().clone();
        let resource = api_resource(kind, api_version(kind));
        let request = Request::new(<Received>::url_path(&resource, Some(&namespace)));
        let parameters = PostParams::default();
        let encode = |value| serde_json::to_vec(value).map_err(kube::Error::SerdeError);
        let (verb, request) = match &write {
            ServiceWrite::Create(object) => (
                "create",
                request.create(&parameters, encode(&object.value)?),
            ),
            ServiceWrite::Replace { object, version } => {
                let mut value = object.value.clone();
                value["metadata"]["resourceVersion"] = json!(version);
                (
                    "replace",
                    request.replace(&name, &parameters, encode(&value)?),
                )
            }
            ServiceWrite::Delete { version, .. } => {
                let parameters = DeleteParams::default().preconditions(Preconditions {
                    resource_version: Some(version.clone()),
                    uid: None,
                });
                ("delete", request.delete(&name, &parameters))
            }
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.replica.metrics.published(kind.as_str(), verb);
        tracing::debug!(kind = kind.as_str(), namespace, name, verb, "written");
        let deleted = matches!(write, ServiceWrite::Delete { .. });
        match self.replica.client.request::<Received>(request).await {
            Ok(stored) => Ok((!deleted).then_some(stored)),
            Err(kube::Error::Api(status)) if deleted && status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Cache {
    /// Takes an event of a watch.
    fn take(&mut self, kind: Kind, event: WatchEvent<Received>) {
        let Inventory {
            gateways,
            gone,
            objects,
        } = &mut self.inventory;
        match event {
            WatchEvent::Listed(all) => {
                match kind {
                    Kind::Gateway => {
                        let before = std::mem::take(gateways);
                        gone.extend(before.into_values().map(|basis| basis.uid));
                    }
                    _ => objects.retain(|(of, _), _| *of != kind),
                }
                self.listed.insert(kind);
                for received in &all {
                    self.put(kind, received);
                }
            }
            WatchEvent::Applied(received) => self.put(kind, &received),
            WatchEvent::Deleted(received) => match kind {
                Kind::Gateway => self.forget(&received.name()),
                _ => {
                    objects.remove(&(kind, received.name()));
                }
            },
        }
    }

    /// Takes over what resolution and reports say now of each Gateway.
    fn tell(&mut self, requests: &ServiceRequests, hosts: &HostsByGateway) {
        for basis in self.inventory.gateways.values_mut() {
            basis.tell(requests, hosts);
        }
    }

    /// Forgets a Gateway that is gone; what is left of it is still known to be ours.
    fn forget(&mut self, gateway: &NamespacedName) {
        let Inventory { gateways, gone, .. } = &mut self.inventory;
        gone.extend(gateways.remove(gateway).map(|basis| basis.uid));
        while gone.len() > MAX_GONE {
            gone.pop_first();
        }
    }

    fn put(&mut self, kind: Kind, received: &Received) {
        let name = received.name();
        if kind == Kind::Gateway {
            // There may have been another Gateway of this name.
            self.forget(&name);
            if let Some(basis) = Basis::of(received) {
                self.inventory.gone.remove(&basis.uid);
                self.inventory.gateways.insert(name, basis);
            }
            return;
        }
        let version = |text: &str| text.parse::<u64>().unwrap_or(0);
        let observed = ExistingObject {
            version: received.version().to_owned(),
            value: received.value().clone(),
        };
        let known = self.inventory.objects.entry((kind, name));
        let known = known.or_insert_with(|| observed.clone());
        // The answer to a write may be newer than the watch.
        if version(&known.version) <= version(&observed.version) {
            *known = observed;
        }
    }
}

fn api_version(kind: Kind) -> &'static str {
    match kind {
        Kind::Gateway => "gateway.networking.k8s.io/v1",
        Kind::EndpointSlice => "discovery.k8s.io/v1",
        _ => "v1",
    }
}
