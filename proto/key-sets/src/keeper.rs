//! Decides when to fetch key sets, and stores copies of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sesame_backoff::Backoff;
use sesame_proto::key_sets::{KeySetCopies, KeySetCopy, KeySetRequest, KeySetRequests};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::fetch::{FetchError, fetch};
use crate::{expired, must_store, next_copy};

const MAX_FETCHES: usize = 8;
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
const RETRIES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Stores copies of key sets.
pub trait KeySetStore: Send + Sync {
    /// Returns all stored copies.
    fn load(&self) -> impl Future<Output = Result<KeySetCopies, String>> + Send;
    /// Creates or replaces a copy.
    fn save(
        &self,
        name: &str,
        copy: &KeySetCopy,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// Removes a copy, if it exists.
    fn remove(&self, name: &str) -> impl Future<Output = Result<(), String>> + Send;
}

/// Updates the copies of all requested key sets while `active` is true.
pub struct KeySetKeeper<S> {
    /// Storage for copies.
    pub store: S,
    /// Requested key sets, or `None` if not yet known.
    pub requests: watch::Receiver<Option<Arc<KeySetRequests>>>,
    /// True while this keeper should fetch.
    pub active: watch::Receiver<bool>,
}

struct Kept {
    stored: KeySetCopy,
    /// Last fetched request. A different request is fetched immediately.
    request: Option<KeySetRequest>,
    next: Instant,
    retries: Backoff,
    is_fetching: bool,
}

type Fetched = (String, KeySetRequest, Result<String, FetchError>);

impl<S: KeySetStore> KeySetKeeper<S> {
    /// Runs until a channel is closed. Calls `observe` with all copies on each change.
    pub async fn run(mut self, observe: impl Fn(&KeySetCopies)) {
        loop {
            if self.active.wait_for(|active| *active).await.is_err() {
                return;
            }
            let stored = self.load().await;
            observe(&stored);
            let kept = stored
                .into_iter()
                .map(|(name, copy)| (name, Kept::of(copy)));
            if !self.keep(kept.collect(), &observe).await {
                return;
            }
        }
    }

    async fn load(&self) -> KeySetCopies {
        let mut retries = RETRIES;
        loop {
            match self.store.load().await {
                Ok(copies) => return copies,
                Err(error) => {
                    tracing::warn!(%error, "cannot read stored key sets; retrying");
                }
            }
            tokio::time::sleep(retries.next_pause()).await;
        }
    }

    async fn keep(
        &mut self,
        mut kept: BTreeMap<String, Kept>,
        observe: &impl Fn(&KeySetCopies),
    ) -> bool {
        let mut fetches: JoinSet<Fetched> = JoinSet::new();
        let mut check = tokio::time::interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut active = self.active.clone();
        loop {
            let requests = self.requests.borrow_and_update().clone();
            if let Some(requests) = &requests {
                self.forget(&mut kept, requests).await;
                start(&mut kept, requests, &mut fetches);
            }
            // Fetch nothing until the requests are known.
            let waiting = kept.values().filter(|it| !it.is_fetching).map(|it| it.next);
            let can_start = requests.is_some() && fetches.len() < MAX_FETCHES;
            let next = waiting.min().filter(|_| can_start);
            tokio::select! {
                changed = self.requests.changed() => if changed.is_err() { return false },
                is_open = inactive(&mut active) => return is_open,
                Some(ended) = fetches.join_next() => match ended {
                    Ok(outcome) => self.store(&mut kept, outcome).await,
                    Err(error) => {
                        tracing::error!(%error, "a fetch failed unexpectedly; restarting all fetches");
                        fetches.shutdown().await;
                        kept.values_mut().for_each(Kept::interrupted);
                    }
                },
                _ = check.tick() => self.restore(&mut kept).await,
                () = until(next) => continue,
            }
            let copies = kept.iter().filter(|(_, it)| !it.stored.uri.is_empty());
            let copies = copies.map(|(name, it)| (name.clone(), it.stored.clone()));
            observe(&copies.collect());
        }
    }

    /// Restores copies that another writer has changed or deleted, and discards keys that are too
    /// old.
    async fn restore(&self, kept: &mut BTreeMap<String, Kept>) {
        if kept.is_empty() {
            return;
        }
        let Ok(found) = self.store.load().await else {
            return;
        };
        for (name, Kept { stored, .. }) in kept {
            if let Some(expired) = expired(stored, Timestamp::now()) {
                *stored = expired;
            }
            let is_stored = stored.uri.is_empty() || found.get(name) == Some(&*stored);
            if !is_stored && let Err(error) = self.store.save(name, stored).await {
                tracing::warn!(uri = stored.uri, %error, "cannot store a key set; retrying");
            }
        }
    }

    async fn forget(&self, kept: &mut BTreeMap<String, Kept>, requests: &KeySetRequests) {
        let unknown = kept.keys().filter(|name| !requests.contains_key(*name));
        for name in unknown.cloned().collect::<Vec<_>>() {
            match self.store.remove(&name).await {
                Ok(()) => {
                    kept.remove(&name);
                }
                Err(error) => {
                    tracing::warn!(%name, %error, "cannot remove an unused key set; retrying later");
                    if let Some(kept) = kept.get_mut(&name) {
                        kept.next = Instant::now() + kept.retries.next_pause();
                    }
                }
            }
        }
    }

    async fn store(&self, kept: &mut BTreeMap<String, Kept>, (name, request, outcome): Fetched) {
        let Some(kept) = kept.get_mut(&name) else {
            return;
        };
        kept.is_fetching = false;
        let uri = &request.uri;
        let now = Timestamp::now();
        let outcome = outcome.map_err(|error| error.to_string());
        let copy = next_copy(&kept.stored, uri, outcome, now);
        let is_good = copy.error.is_empty();
        let was_good = kept.stored.error.is_empty();
        if was_good && !is_good {
            tracing::warn!(%uri, error = copy.error, "cannot fetch a key set; retrying");
        } else if !was_good && is_good {
            tracing::info!(%uri, "fetched the key set again");
        }
        let mut is_stored = true;
        if must_store(&kept.stored, &copy, now) {
            match self.store.save(&name, &copy).await {
                Ok(()) => kept.stored = copy,
                Err(error) => {
                    is_stored = false;
                    tracing::warn!(%uri, %error, "cannot store a key set; retrying");
                }
            }
        }
        kept.next = Instant::now()
            + if is_good && is_stored {
                kept.retries.reset();
                request.interval
            } else {
                kept.retries.next_pause()
            };
    }
}

impl Kept {
    fn of(stored: KeySetCopy) -> Self {
        Self {
            stored,
            request: None,
            next: Instant::now(),
            retries: RETRIES,
            is_fetching: false,
        }
    }

    /// Reschedules the fetch if it was interrupted.
    fn interrupted(&mut self) {
        if std::mem::take(&mut self.is_fetching) {
            self.next = Instant::now() + self.retries.next_pause();
        }
    }
}

/// Starts fetches that are due. The longest overdue come first, so slow issuers cannot starve the
/// others.
fn start(
    kept: &mut BTreeMap<String, Kept>,
    requests: &KeySetRequests,
    fetches: &mut JoinSet<Fetched>,
) {
    let now = Instant::now();
    for name in requests.keys() {
        let new = || Kept::of(KeySetCopy::default());
        kept.entry(name.clone()).or_insert_with(new);
    }
    let mut due = Vec::new();
    for (name, kept) in kept.iter_mut().filter(|(_, kept)| !kept.is_fetching) {
        let Some(request) = requests.get(name) else {
            continue;
        };
        if kept.request.as_ref() != Some(request) {
            kept.next = kept.next.min(now);
        }
        if kept.next <= now {
            due.push((kept, name, request));
        }
    }
    due.sort_by_key(|(kept, ..)| kept.next);
    for (kept, name, request) in due
        .into_iter()
        .take(MAX_FETCHES.saturating_sub(fetches.len()))
    {
        kept.is_fetching = true;
        kept.request = Some(request.clone());
        let (name, request) = (name.clone(), request.clone());
        fetches.spawn(async move {
            let outcome = fetch(&request).await;
            (name, request, outcome)
        });
    }
}

async fn inactive(active: &mut watch::Receiver<bool>) -> bool {
    active.wait_for(|active| !*active).await.is_ok()
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => tokio::time::sleep_until(next).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use sesame_proto::key_sets::{FetchedDocument, KeySetTrust};

    use super::*;

    #[tokio::test]
    async fn longest_overdue_key_sets_are_fetched_first() {
        let request = KeySetRequest {
            uri: "https://issuer.test".to_owned(),
            document: FetchedDocument::KeySet,
            trust: KeySetTrust::System,
            interval: Duration::from_secs(60),
            permits_local: false,
        };
        let name = |n: u64| format!("{n:02}");
        let requests: KeySetRequests = (0..20).map(|n| (name(n), request.clone())).collect();
        let now = Instant::now();
        // The last names are the longest overdue.
        let overdue = |n: u64| {
            let mut kept = Kept::of(KeySetCopy::default());
            kept.request = Some(request.clone());
            kept.next = now.checked_sub(Duration::from_millis(n)).unwrap_or(now);
            (name(n), kept)
        };
        let mut kept: BTreeMap<String, Kept> = (0..20).map(overdue).collect();
        // Nothing awaits the fetches, so they do not run.
        let mut fetches = JoinSet::new();
        start(&mut kept, &requests, &mut fetches);
        let started = kept.iter().filter(|(_, kept)| kept.is_fetching);
        let started: Vec<&String> = started.map(|(name, _)| name).collect();
        let expected: Vec<String> = (12..20).map(name).collect();
        assert_eq!(started, expected.iter().collect::<Vec<_>>());
        start(&mut kept, &requests, &mut fetches);
        assert_eq!(fetches.len(), MAX_FETCHES);
    }
}
