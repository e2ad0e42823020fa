//! Writes what the plan says, while this replica leads. The only place that writes Services and EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::request::Request;
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _};
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Basis;
use super::objects::Key;
use super::plan::{Observed, Write, plan};
use crate::api::NamespacedName;
use crate::cluster::published::GATEWAY_LABEL;
use crate::engine::Offers;
use crate::serve::Metrics;
use crate::watch::{Incoming, Seen, api_resource, follow, watch_config};
use crate::world::Kind;

/// How long one write may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A write that failed is tried again after this.
const PAUSE: Duration = Duration::from_secs(5);
/// What is watched.
const KINDS: [Kind; 3] = [Kind::Gateway, Kind::Service, Kind::EndpointSlice];

/// Everything the provisioner's task owns.
pub(crate) struct Provisioner {
    pub(crate) client: Client,
    pub(crate) offers: watch::Receiver<Option<Arc<Offers>>>,
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What the watches have seen.
#[derive(Default)]
struct Known {
    listed: BTreeSet<Kind>,
    gateways: BTreeMap<NamespacedName, Basis>,
    objects: BTreeMap<Key, Observed>,
}

impl Provisioner {
    /// Runs until there is nothing to wait for any more.
    pub(crate) async fn run(mut self) {
        let (events, mut seen) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        for kind in KINDS {
            watches.spawn(self.watch(kind, events.clone()));
        }
        drop(events);
        let mut known = Known::default();
        let mut retries: BTreeMap<Key, Instant> = BTreeMap::new();
        loop {
            let next_try = retries.values().min().copied();
            tokio::select! {
                event = seen.recv() => match event {
                    Some((kind, event)) => known.take(kind, event),
                    None => return,
                },
                changed = self.offers.changed() => if changed.is_err() { return },
                changed = self.leading.changed() => if changed.is_err() { return },
                () = until(next_try) => {}
            }
            while let Ok((kind, event)) = seen.try_recv() {
                known.take(kind, event);
            }
            let Some(offers) = self.offers.borrow_and_update().clone() else {
                continue;
            };
            if known.listed.len() < KINDS.len() || !*self.leading.borrow_and_update() {
                continue;
            }
            let now = Instant::now();
            retries.retain(|_, at| *at > now);
            for write in plan(&known.gateways, offers.keys(), &known.objects) {
                let key = write.key().clone();
                if retries.contains_key(&key) || !*self.leading.borrow() {
                    continue;
                }
                match self.write(write).await {
                    Ok(Some(stored)) => known.put(key.0, &stored),
                    Ok(None) => {
                        known.objects.remove(&key);
                    }
                    Err(why) => {
                        let (kind, name) = &key;
                        tracing::warn!(kind = kind.as_str(), %name, "cannot be written and is tried again: {why}");
                        retries.insert(key, Instant::now() + PAUSE);
                    }
                }
            }
        }
    }

    fn watch(
        &self,
        kind: Kind,
        events: UnboundedSender<(Kind, Seen<Incoming>)>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let api: Api<Incoming> =
            Api::all_with(self.client.clone(), &api_resource(kind, api_version(kind)));
        let config = match kind {
            Kind::Gateway => watch_config(),
            _ => watch_config().labels(GATEWAY_LABEL),
        };
        let metrics = Arc::clone(&self.metrics);
        async move {
            let take = |seen| events.send((kind, seen)).is_ok();
            let kind = kind.as_str();
            let fail = |error: &watcher::Error| {
                metrics.watch_failed(kind);
                tracing::warn!(kind, %error, "the watch of what Gateways have in the cluster failed; it is started again");
            };
            while follow(
                watcher(api.clone(), config.clone()),
                |incoming| incoming,
                take,
                fail,
            )
            .await
            {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// What is stored now; none if it is gone.
    async fn write(&self, write: Write) -> Result<Option<Incoming>, String> {
        match tokio::time::timeout(TIMEOUT, self.send(write)).await {
            Ok(Ok(stored)) => Ok(stored),
            Ok(Err(kube::Error::Api(status))) if status.reason == "AlreadyExists" => {
                Err("there is one of this name that is not ours".to_owned())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer in {TIMEOUT:?}")),
        }
    }

    async fn send(&self, write: Write) -> kube::Result<Option<Incoming>> {
        let (kind, NamespacedName { namespace, name }) = write.key().clone();
        let resource = api_resource(kind, api_version(kind));
        let request = Request::new(Incoming::url_path(&resource, Some(&namespace)));
        let parameters = PostParams::default();
        let encode = |value| serde_json::to_vec(value).map_err(kube::Error::SerdeError);
        let (verb, request) = match &write {
            Write::Create(object) => (
                "create",
                request.create(&parameters, encode(&object.value)?),
            ),
            Write::Replace { object, version } => {
                let mut value = object.value.clone();
                value["metadata"]["resourceVersion"] = json!(version);
                (
                    "replace",
                    request.replace(&name, &parameters, encode(&value)?),
                )
            }
            Write::Delete { version, .. } => {
                let parameters = DeleteParams::default().preconditions(Preconditions {
                    resource_version: Some(version.clone()),
                    uid: None,
                });
                ("delete", request.delete(&name, &parameters))
            }
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.metrics.published(kind.as_str(), verb);
        let deleted = matches!(write, Write::Delete { .. });
        match self.client.request::<Incoming>(request).await {
            Ok(stored) => Ok((!deleted).then_some(stored)),
            Err(kube::Error::Api(status)) if deleted && status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Known {
    /// Takes what a watch saw.
    fn take(&mut self, kind: Kind, seen: Seen<Incoming>) {
        match seen {
            Seen::All(all) => {
                match kind {
                    Kind::Gateway => self.gateways.clear(),
                    _ => self.objects.retain(|(of, _), _| *of != kind),
                }
                self.listed.insert(kind);
                for incoming in &all {
                    self.put(kind, incoming);
                }
            }
            Seen::One(incoming) => self.put(kind, &incoming),
            Seen::Gone(incoming) => match kind {
                Kind::Gateway => {
                    self.gateways.remove(&incoming.name());
                }
                _ => {
                    self.objects.remove(&(kind, incoming.name()));
                }
            },
        }
    }

    fn put(&mut self, kind: Kind, incoming: &Incoming) {
        let name = incoming.name();
        if kind == Kind::Gateway {
            match Basis::of(incoming) {
                Some(basis) => self.gateways.insert(name, basis),
                None => self.gateways.remove(&name),
            };
            return;
        }
        let version = |text: &str| text.parse::<u64>().unwrap_or(0);
        let observed = Observed {
            version: incoming.version().to_owned(),
            value: incoming.value.clone(),
        };
        let known = self.objects.entry((kind, name));
        let known = known.or_insert_with(|| observed.clone());
        // What a write has told may be newer than what the watch tells.
        if version(&known.version) < version(&observed.version) {
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

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
