//! Watches one kind and delivers its lists and changes. Each object is reduced to the parts that
//! the caller keeps.

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

use super::merged::{MergedLists, OfName};
use crate::replica::{ApiFailures, Replica};
use crate::retry::{READS, WatchBackoff};
use crate::serve::Metrics;
use sesame_gateway_api::api::NamespacedName;

/// Duration of one watch in seconds, after which the API server ends it. This distinguishes a
/// frozen API server, or a network that drops all packets, from a quiet cluster.
const WATCH_SECONDS: u32 = 45;

/// Pause before listing again after a watch's resource version has expired.
const FORGOTTEN: Duration = Duration::from_millis(100);

/// Returns the configuration shared by all watches.
pub(crate) fn watch_config() -> Config {
    Config::default().timeout(WATCH_SECONDS)
}

/// A watch event.
#[derive(Debug)]
pub(crate) enum WatchEvent<T> {
    /// All existing objects. Objects that are not listed were deleted.
    Listed(Vec<T>),
    /// A new or changed object.
    Applied(T),
    /// The last state of a deleted object.
    Deleted(T),
}

/// Reason why a kind cannot be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwatched {
    /// The API server does not serve the kind.
    NotServed,
    /// The API server forbids the watch.
    Forbidden,
}

/// A watch on objects of one kind. It runs until its receiver is dropped.
pub(crate) struct ObjectWatch<K> {
    apis: Vec<Api<K>>,
    config: Config,
    kind: &'static str,
    metrics: Arc<Metrics>,
    failures: Arc<ApiFailures>,
}

impl<K> ObjectWatch<K>
where
    K: kube::Resource + OfName + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Watches the objects that `api` and `config` select. `kind` names the watch in logs and
    /// metrics.
    pub(crate) fn new(replica: &Replica, kind: &'static str, api: Api<K>, config: Config) -> Self {
        Self::of_all(replica, kind, vec![api], config)
    }

    /// Watches the objects of several namespaces as one collection.
    pub(crate) fn of_all(
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

    /// Passes events to `take` until it returns false. Failures are counted, logged and retried;
    /// known objects are kept in the meantime. `pause` is the pause before retrying a kind that is
    /// not served. For `keep`, see [`follow`].
    pub(crate) async fn run<T>(
        self,
        pause: Duration,
        keep: impl Fn(K) -> T,
        take: impl Fn(Result<WatchEvent<T>, Unwatched>) -> bool,
    ) {
        let kind = self.kind;
        let fail = |error: &Error| {
            self.metrics.watch_failed(kind);
            self.failures.record(kind, error);
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

/// Merges the watches on a kind and passes their events to `take`. Ends if `take` returns false or
/// the kind is not served. Returns true in the latter case.
///
/// `keep` extracts the needed parts of each object on arrival, so that two lists of whole objects
/// are never in memory. Errors are passed to `fail`, and each watch retries on its own.
pub(crate) async fn follow<K: kube::Resource + OfName + Debug, T>(
    watches: Vec<impl Stream<Item = Result<Event<K>, Error>>>,
    keep: impl Fn(K) -> T,
    mut take: impl FnMut(WatchEvent<T>) -> bool,
    mut fail: impl FnMut(&Error),
) -> bool {
    let mut lists = MergedLists::new(watches.len());
    let gone = |name: NamespacedName| {
        keep(K::of_name(ObjectMeta {
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
        let events = forgotten_passed_over(watch).backoff(WatchBackoff(READS));
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
        for event in lists.take(index, event, gone) {
            if !take(event) {
                return false;
            }
        }
    }
    false
}

/// Drops the error for an expired resource version, which occurs e.g. after an API server restart.
/// The watch lists again, without the backoff that an unreachable server needs.
fn forgotten_passed_over<K>(
    watch: impl Stream<Item = Result<Event<K>, Error>>,
) -> impl Stream<Item = Result<Event<K>, Error>> {
    watch.filter_map(async |event| match event {
        Err(Error::WatchError(status)) if status.code == 410 => {
            // Pause in any case, to prevent a tight loop.
            tokio::time::sleep(FORGOTTEN).await;
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
