//! Follows the manifests and endpoint shards: a list, then a watch from where the list was.
//!
//! kube's own watcher hides when a lost watch is back, and here that is what a host's state depends on: nothing is
//! taken for gone, and nothing for current, while nobody is listening.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};

use super::backoff::{Backoff, jittered};
use super::connect::{Settings, connect, describe_error};

/// ConfigMaps hold a mebibyte each.
const PAGE: u32 = 50;
/// More than these are not ours to hold.
const MAX_OBJECTS: usize = 10_000;
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// How long one watch goes on. Not the same on all hosts, so that they do not all come back at once.
const WATCH_SECONDS: Duration = Duration::from_secs(240);
/// The API server says something every minute, if it lives. One that is frozen, or behind a network that swallows
/// everything, says as little as one where nothing happens: so after this long it is asked for its version,
const QUIET: Duration = Duration::from_secs(20);
/// and has so long to answer, whatever it answers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A watch that went on for so long is a good one.
const STEADY: Duration = Duration::from_secs(5);

/// What is seen of the cluster.
#[derive(Debug)]
pub(super) enum Event {
    /// All there is, at one moment.
    Listed(Vec<ConfigMap>),
    /// This came or changed.
    Changed(Box<ConfigMap>),
    /// This is gone, or has other labels.
    Deleted(Box<ConfigMap>),
    /// Nobody is listening any more.
    Lost(String),
    /// The watch goes on where it was.
    Back,
}

/// Follows until nobody takes the events. Gives others the client that works.
pub(super) async fn follow(
    settings: Settings,
    clients: watch::Sender<Option<Client>>,
    events: mpsc::Sender<Event>,
) {
    let mut follower = Follower {
        selector: settings.selector(),
        events,
        version: None,
        backoff: Backoff::default(),
    };
    while !follower.events.is_closed() {
        let error = match connect(&settings).await {
            Ok(client) => {
                clients.send_replace(Some(client.clone()));
                let api = Api::namespaced(client, &settings.namespace);
                follower.until_lost(&api).await
            }
            Err(error) => error,
        };
        if follower.events.send(Event::Lost(error)).await.is_err() {
            return;
        }
        tokio::time::sleep(follower.backoff.next()).await;
    }
}

struct Follower {
    selector: String,
    events: mpsc::Sender<Event>,
    /// Where the watch was; none before the first list, or when the server no longer knows.
    version: Option<String>,
    backoff: Backoff,
}

impl Follower {
    /// Says why it ended.
    async fn until_lost(&mut self, api: &Api<ConfigMap>) -> String {
        loop {
            let began = Instant::now();
            let watching = self.version.is_some();
            let outcome = match self.version.clone() {
                None => self.list(api).await,
                Some(version) => self.watch(api, &version).await,
            };
            let steady = began.elapsed() >= STEADY;
            if watching && steady {
                self.backoff.reset();
            }
            match outcome {
                Ok(()) => {}
                Err(Failure::Expired) => self.version = None,
                Err(Failure::Lost(error)) => return error,
            }
            if watching && !steady {
                // A server that ends watches at once is not to be asked in a circle.
                tokio::time::sleep(self.backoff.next()).await;
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
                return Err(Failure::Lost(format!(
                    "more than {MAX_OBJECTS} ConfigMaps are published for this host"
                )));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break page.metadata.resource_version,
            }
        };
        self.tell(Event::Listed(all)).await?;
        self.version = version;
        Ok(())
    }

    /// Ends well when the server ends it, and is to be started again.
    async fn watch(&mut self, api: &Api<ConfigMap>, version: &str) -> Result<(), Failure> {
        let seconds = u32::try_from(jittered(WATCH_SECONDS).as_secs()).unwrap_or(240);
        let params = WatchParams::default()
            .labels(&self.selector)
            .timeout(seconds.min(290));
        let stream = within(START_TIMEOUT, api.watch(&params, version)).await?;
        self.tell(Event::Back).await?;
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
                    (Some(Event::Changed(Box::new(object))), version)
                }
                WatchEvent::Deleted(object) => {
                    let version = object.metadata.resource_version.clone();
                    (Some(Event::Deleted(Box::new(object))), version)
                }
                WatchEvent::Bookmark(bookmark) => (None, Some(bookmark.metadata.resource_version)),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            };
            if let Some(event) = event {
                self.tell(event).await?;
            }
            if version.is_some() {
                self.version = version;
            }
        }
    }

    async fn tell(&self, event: Event) -> Result<(), Failure> {
        let gone = |_| Failure::Lost("nobody takes the events".to_owned());
        self.events.send(event).await.map_err(gone)
    }
}

enum Failure {
    /// The server has forgotten where the watch or the list was: all of it is to be listed anew.
    Expired,
    Lost(String),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 410 || status.reason == "Expired" => {
                Self::Expired
            }
            error => Self::Lost(describe_error(error)),
        }
    }
}

/// Whether the API server answers at all. A refusal is an answer.
async fn answers(api: &Api<ConfigMap>) -> Result<(), Failure> {
    let client = api.clone().into_client();
    match tokio::time::timeout(PROBE_TIMEOUT, client.apiserver_version()).await {
        Ok(Ok(_) | Err(kube::Error::Api(_))) => Ok(()),
        Ok(Err(error)) => Err(Failure::Lost(describe_error(&error))),
        Err(_) => Err(unanswered(PROBE_TIMEOUT)),
    }
}

async fn within<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, request).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(unanswered(limit)),
    }
}

fn unanswered(limit: Duration) -> Failure {
    Failure::Lost(format!("the API server has not answered within {limit:?}"))
}
