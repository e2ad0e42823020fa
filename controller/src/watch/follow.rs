//! One watch, as lists and changes of what the caller makes of each object.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Error, Event};

use super::backoff::Pauses;

/// How long one watch goes on. An API server that is frozen, or a network that swallows everything, looks like one where
/// nothing happens: only that it ends a watch in time tells the difference.
const WATCH_SECONDS: u32 = 45;

/// How everything is watched.
pub(crate) fn watch_config() -> Config {
    Config::default().timeout(WATCH_SECONDS)
}

/// What a watch saw.
#[derive(Debug)]
pub(crate) enum Seen<T> {
    /// Everything that there is: whatever else was known is gone.
    All(Vec<T>),
    /// One that is new or changed.
    One(T),
    /// One that was deleted, as it was last.
    Gone(T),
}

/// Passes on what the watch sees until `take` says stop or the kind is not served; says whether it is the latter.
///
/// `keep` makes of each object what is worth keeping, at once, so that no two lists of whole objects are in memory.
/// Errors are told to `fail` and waited out.
pub(crate) async fn follow<K: Debug, T>(
    watch: impl Stream<Item = Result<Event<K>, Error>>,
    keep: impl Fn(K) -> T,
    mut take: impl FnMut(Seen<T>) -> bool,
    mut fail: impl FnMut(&Error),
) -> bool {
    let mut watch = std::pin::pin!(watch.backoff(Pauses::default()));
    let mut listed = Vec::new();
    while let Some(event) = watch.next().await {
        let seen = match event {
            Ok(Event::Init) => {
                listed = Vec::new();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.push(keep(object));
                continue;
            }
            Ok(Event::InitDone) => Seen::All(std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => Seen::One(keep(object)),
            Ok(Event::Delete(object)) => Seen::Gone(keep(object)),
            Err(error) => {
                fail(&error);
                if is_not_served(&error) {
                    return true;
                }
                continue;
            }
        };
        if !take(seen) {
            return false;
        }
    }
    false
}

fn is_not_served(error: &Error) -> bool {
    code(error) == Some(404)
}

/// Whether the API server says that we may not.
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
