//! Watches one kind and delivers its lists and changes.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::select_all;
use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Error, Event};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::merged::{FromName, MergedLists};
use crate::replica::{ApiFailures, Replica};
use crate::retry::{READ_BACKOFF, WatchBackoff};
use crate::serve::Metrics;
use sesame_kinds::api::NamespacedName;

/// Maximum duration of a watch, to distinguish a frozen API server or network from a quiet cluster.
const WATCH_SECONDS: u32 = 45;

/// Delay before listing again after a resource version has expired.
const RELIST_DELAY: Duration = Duration::from_millis(100);

pub(crate) fn watch_config() -> Config {
    Config::default().timeout(WATCH_SECONDS)
}

#[derive(Debug)]
pub(crate) enum WatchEvent<T> {
    /// A complete list; any object not in it was deleted.
    Listed(Vec<T>),
    Applied(T),
    Deleted(T),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwatched {
    NotServed,
    Forbidden,
}

/// Runs until its receiver is dropped.
pub(crate) struct ObjectWatch<K> {
    apis: Vec<Api<K>>,
    config: Config,
    kind: &'static str,
    metrics: Arc<Metrics>,
    failures: Arc<ApiFailures>,
}

impl<K> ObjectWatch<K>
where
    K: kube::Resource + FromName + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// `kind` names the watch in logs and metrics.
    pub(crate) fn new(replica: &Replica, kind: &'static str, api: Api<K>, config: Config) -> Self {
        Self::for_apis(replica, kind, vec![api], config)
    }

    pub(crate) fn for_apis(
        replica: &Replica,
        kind: &'static str,
        apis: Vec<Api<K>>,
        config: Config,
    ) -> Self {
        Self {
            apis,
            config,
            kind,
            metrics: Arc::clone(&replica.metrics),
            failures: Arc::clone(&replica.failures),
        }
    }

    /// Stops once `take` returns false. Failures are retried, and known objects are kept. `pause`
    /// is the delay before the next attempt if the kind is not served; for `keep`, see [`follow`].
    pub(crate) async fn run<T>(
        self,
        pause: Duration,
        keep: impl Fn(K) -> T,
        take: impl Fn(Result<WatchEvent<T>, Unwatched>) -> bool,
    ) {
        let kind = self.kind;
        let fail = |error: &Error| {
            self.metrics.watch_failed(kind);
            // If the kind is not served, the API server has not failed.
            if code(error) != Some(404) {
                self.failures.record(kind, error);
            }
            if code(error) == Some(403) {
                take(Err(Unwatched::Forbidden));
            }
        };
        loop {
            let apis = self.apis.iter();
            let watches = apis.map(|api| watcher::watcher(api.clone(), self.config.clone()));
            let ended = !follow(watches.collect(), &keep, |event| take(Ok(event)), fail).await;
            if ended || !take(Err(Unwatched::NotServed)) {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Returns true if the kind is not served, and false once `take` returns false. `keep` reduces each
/// object on arrival, which limits memory. Each watch retries independently.
pub(crate) async fn follow<K: kube::Resource + FromName + Debug, T>(
    watches: Vec<impl Stream<Item = Result<Event<K>, Error>>>,
    keep: impl Fn(K) -> T,
    mut take: impl FnMut(WatchEvent<T>) -> bool,
    mut fail: impl FnMut(&Error),
) -> bool {
    let mut lists = MergedLists::new(watches.len());
    let gone = |name: NamespacedName| {
        keep(K::from_name(ObjectMeta {
            name: Some(name.name),
            namespace: Some(name.namespace).filter(|namespace| !namespace.is_empty()),
            ..ObjectMeta::default()
        }))
    };
    let named = |object: K| {
        let name = NamespacedName {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        };
        (name, keep(object))
    };
    let watches = watches.into_iter().enumerate().map(|(index, watch)| {
        let events = skip_expired_version(watch).backoff(WatchBackoff(READ_BACKOFF));
        Box::pin(events.map(move |event| (index, event)))
    });
    let mut events = select_all(watches);
    while let Some((index, event)) = events.next().await {
        let event = match event {
            Ok(Event::Init) => Event::Init,
            Ok(Event::InitApply(object)) => Event::InitApply(named(object)),
            Ok(Event::InitDone) => Event::InitDone,
            Ok(Event::Apply(object)) => Event::Apply(named(object)),
            Ok(Event::Delete(object)) => Event::Delete(named(object)),
            Err(error) => {
                fail(&error);
                if code(&error) == Some(404) {
                    return true;
                }
                continue;
            }
        };
        for event in lists.apply(index, event, gone) {
            if !take(event) {
                return false;
            }
        }
    }
    false
}

/// Drops the error for an expired resource version, for example after an API server restart, so the
/// watch lists again without a backoff.
fn skip_expired_version<K>(
    watch: impl Stream<Item = Result<Event<K>, Error>>,
) -> impl Stream<Item = Result<Event<K>, Error>> {
    watch.filter_map(async |event| match event {
        Err(Error::WatchError(status)) if status.code == 410 => {
            // Prevents a tight loop.
            tokio::time::sleep(RELIST_DELAY).await;
            None
        }
        event => Some(event),
    })
}

fn code(error: &Error) -> Option<u16> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}
