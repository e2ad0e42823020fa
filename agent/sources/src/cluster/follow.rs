//! Lists manifests and endpoint shards, then watches from the version of that list.
//!
//! Does not use kube's watcher, because it does not report when a lost watch resumes, which the
//! host's status must show. Without a watch, no object may be considered deleted or current.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};

use super::backoff::{ServerBackoff, ServerFault, jittered};
use super::connect::{ClusterSettings, connect, describe_error, fault, within};

/// Number of objects per page, small because each ConfigMap may contain 1 MiB.
const PAGE: u32 = 50;
const MAX_OBJECTS: usize = 10_000;
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// Duration of a watch. Jitter is added, so hosts do not all reconnect at the same time.
const WATCH_SECONDS: Duration = Duration::from_secs(240);
/// After this much silence, request the server's version to check that the server is alive.
/// Otherwise, a broken network would look like a cluster without changes.
const QUIET: Duration = Duration::from_secs(20);
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum duration of a watch that counts as steady.
const STEADY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) enum ClusterEvent {
    Listed(Vec<ConfigMap>),
    Changed(Box<ConfigMap>),
    /// Deleted, or its labels no longer match.
    Deleted(Box<ConfigMap>),
    Lost(String),
    /// The watch has resumed from its last version.
    Back,
}

/// Runs until the event receiver is dropped. Sends each new client to `clients`.
pub(super) async fn follow(
    settings: ClusterSettings,
    clients: watch::Sender<Option<Client>>,
    events: mpsc::Sender<ClusterEvent>,
) {
    let mut follower = Follower {
        selector: settings.selector(),
        events,
        version: None,
        expired: false,
        backoff: ServerBackoff::default(),
    };
    while !follower.events.is_closed() {
        let (fault, error) = match connect(&settings).await {
            Ok(client) => {
                clients.send_replace(Some(client.clone()));
                let api = Api::namespaced(client, &settings.namespace);
                follower.until_lost(&api).await
            }
            Err(error) => (ServerFault::Unreachable, error),
        };
        if follower
            .events
            .send(ClusterEvent::Lost(error))
            .await
            .is_err()
        {
            return;
        }
        tokio::time::sleep(follower.backoff.after(fault)).await;
    }
}

struct Follower {
    selector: String,
    events: mpsc::Sender<ClusterEvent>,
    /// Last `resourceVersion` seen. `None` before the first list, or if the version has expired.
    version: Option<String>,
    /// The version expired, and no watch has been steady since.
    expired: bool,
    backoff: ServerBackoff,
}

impl Follower {
    async fn until_lost(&mut self, api: &Api<ConfigMap>) -> (ServerFault, String) {
        loop {
            let start = Instant::now();
            let watching = self.version.is_some();
            let outcome = match self.version.clone() {
                None => self.list(api).await,
                Some(version) => self.watch(api, &version).await,
            };
            let steady = start.elapsed() >= STEADY;
            if watching && steady {
                self.backoff.reset();
                self.expired = false;
            }
            match outcome {
                Ok(()) => {}
                Err(Failure::Expired) => {
                    self.version = None;
                    // A restarted server may not have the version. List again immediately, but only
                    // once.
                    if !std::mem::replace(&mut self.expired, true) {
                        continue;
                    }
                }
                Err(Failure::Lost(fault, error)) => return (fault, error),
            }
            if watching && !steady {
                // Do not spin if the server closes each watch immediately.
                tokio::time::sleep(self.backoff.after(ServerFault::Unreachable)).await;
            }
        }
    }

    async fn list(&mut self, api: &Api<ConfigMap>) -> Result<(), Failure> {
        let mut params = ListParams::default().labels(&self.selector).limit(PAGE);
        let mut all = Vec::new();
        let version = loop {
            let page = within(LIST_TIMEOUT, api.list(&params)).await?;
            all.extend(page.items);
            if all.len() > MAX_OBJECTS {
                let why = format!("more than {MAX_OBJECTS} ConfigMaps are published for this host");
                return Err(Failure::Lost(ServerFault::Refused, why));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break page.metadata.resource_version,
            }
        };
        self.send_event(ClusterEvent::Listed(all)).await?;
        self.version = version;
        Ok(())
    }

    /// Returns `Ok` when the server closes the watch.
    async fn watch(&mut self, api: &Api<ConfigMap>, version: &str) -> Result<(), Failure> {
        let seconds = u32::try_from(jittered(WATCH_SECONDS).as_secs()).unwrap_or(240);
        let params = WatchParams::default()
            .labels(&self.selector)
            .timeout(seconds.min(290));
        let stream = within(START_TIMEOUT, api.watch(&params, version)).await?;
        self.send_event(ClusterEvent::Back).await?;
        let mut stream = std::pin::pin!(stream.map_err(Failure::from));
        loop {
            let Ok(event) = tokio::time::timeout(jittered(QUIET), stream.next()).await else {
                answers(api).await?;
                continue;
            };
            let Some(event) = event.transpose()? else {
                return Ok(());
            };
            let (event, version) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let version = object.metadata.resource_version.clone();
                    (Some(ClusterEvent::Changed(Box::new(object))), version)
                }
                WatchEvent::Deleted(object) => {
                    let version = object.metadata.resource_version.clone();
                    (Some(ClusterEvent::Deleted(Box::new(object))), version)
                }
                WatchEvent::Bookmark(bookmark) => (None, Some(bookmark.metadata.resource_version)),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            };
            if let Some(event) = event {
                self.send_event(event).await?;
            }
            if version.is_some() {
                self.version = version;
            }
        }
    }

    async fn send_event(&self, event: ClusterEvent) -> Result<(), Failure> {
        let gone = |_| {
            Failure::Lost(
                ServerFault::Refused,
                "the event receiver is gone".to_owned(),
            )
        };
        self.events.send(event).await.map_err(gone)
    }
}

enum Failure {
    /// The server no longer has the version, so list all objects again.
    Expired,
    Lost(ServerFault, String),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 410 || status.reason == "Expired" => {
                Self::Expired
            }
            error => Self::Lost(fault(error), describe_error(error)),
        }
    }
}

/// Checks that the server responds, even if only with an error status.
async fn answers(api: &Api<ConfigMap>) -> Result<(), Failure> {
    let client = api.clone().into_client();
    match within(PROBE_TIMEOUT, client.apiserver_version()).await {
        Ok(_) | Err(kube::Error::Api(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
