//! One watch, as lists and changes of the values that the caller makes of each object.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Error, Event};

use crate::retry::Pauses;

/// Seconds that one watch lasts. An API server that is frozen, or a network that swallows everything, looks like one where
/// nothing happens: only that it ends a watch in time tells the difference.
const WATCH_SECONDS: u32 = 45;

/// Returns the settings that all watches share.
pub(crate) fn watch_config() -> Config {
    Config::default().timeout(WATCH_SECONDS)
}

/// Event of a watch.
#[derive(Debug)]
pub(crate) enum WatchEvent<T> {
    /// All objects that there are: whatever else was known is gone.
    Listed(Vec<T>),
    /// An object that is new or changed.
    Applied(T),
    /// An object that was deleted, as it was last.
    Deleted(T),
}

/// Passes on the events of the watch until `take` returns false, or the kind is not served; returns true for the latter.
///
/// `keep` makes of each object what is worth keeping, at once, so that no two lists of whole objects are in memory.
/// Errors are handed to `fail` and waited out.
pub(crate) async fn follow<K: Debug, T>(
    watch: impl Stream<Item = Result<Event<K>, Error>>,
    keep: impl Fn(K) -> T,
    mut take: impl FnMut(WatchEvent<T>) -> bool,
    mut fail: impl FnMut(&Error),
) -> bool {
    let mut watch = std::pin::pin!(watch.backoff(Pauses::of_reads()));
    let mut listed = Vec::new();
    while let Some(event) = watch.next().await {
        let event = match event {
            Ok(Event::Init) => {
                listed = Vec::new();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.push(keep(object));
                continue;
            }
            Ok(Event::InitDone) => WatchEvent::Listed(std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => WatchEvent::Applied(keep(object)),
            Ok(Event::Delete(object)) => WatchEvent::Deleted(keep(object)),
            Err(error) => {
                fail(&error);
                if is_not_served(&error) {
                    return true;
                }
                continue;
            }
        };
        if !take(event) {
            return false;
        }
    }
    false
}

fn is_not_served(error: &Error) -> bool {
    code(error) == Some(404)
}

/// Returns true if the API server forbids the watch.
pub(crate) fn is_forbidden(error: &Error) -> bool {
    code(error) == Some(403)
}

fn code(error: &Error) -> Option<u16> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}
