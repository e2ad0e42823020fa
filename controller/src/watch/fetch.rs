//! Reads only the Secrets and ConfigMaps that are referenced. On startup, first reads the previous
//! publications, which stay in use while a Secret is broken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use kube::api::Api;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::kinds::decode;
use super::published_before::published_before;
use super::{Input, Received, api_resource};
use crate::connection::answer;
use crate::replica::Replica;
use crate::retry::READ_BACKOFF;
use sesame_kinds::world::{AnyObject, Kind, ObjectKey};
use sesame_proto::key_sets::is_copy_name;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Number of rejections, over about ten seconds, after which a rejection is final.
const MAX_REFUSALS: u32 = 8;
const RECHECK_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) enum FetchOutcome {
    Found(AnyObject),
    Missing,
    /// The last known version is kept.
    Unreadable,
}

#[derive(Debug)]
pub(crate) enum Touched {
    Object(ObjectKey),
    /// The kind was listed again, so any of its objects might have changed.
    Kind(Kind),
}

/// Referenced objects with request numbers. An object that is dropped and referenced again gets a
/// new number, so the fetcher rereads it.
pub(crate) type References = Arc<BTreeMap<ObjectKey, u64>>;

/// Returns objects whose request number is not in `before`.
pub(crate) fn newly_requested(before: &References, now: &References) -> Vec<ObjectKey> {
    let new = now
        .iter()
        .filter(|(key, request)| before.get(key) != Some(request));
    new.map(|(key, _)| key.clone()).collect()
}

pub(crate) struct Fetcher {
    pub(crate) replica: Replica,
    pub(crate) references: watch::Receiver<References>,
    pub(crate) touched: UnboundedReceiver<Touched>,
    pub(crate) inputs: Sender<Input>,
}

impl Fetcher {
    pub(crate) async fn run(mut self) {
        let published = published_before(&self.replica).await;
        if self.inputs.send(Input::Published(published)).is_err() {
            return;
        }
        let mut wanted = References::default();
        // True if an event has arrived during the read, which requires another read.
        let mut reading: BTreeMap<ObjectKey, bool> = BTreeMap::new();
        let mut reads: JoinSet<(ObjectKey, FetchOutcome)> = JoinSet::new();
        loop {
            let mut due: Vec<ObjectKey> = Vec::new();
            tokio::select! {
                changed = self.references.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let before = wanted;
                    wanted = Arc::clone(&self.references.borrow_and_update());
                    due = newly_requested(&before, &wanted);
                }
                touched = self.touched.recv() => match touched {
                    None => return,
                    Some(Touched::Object(key)) if wanted.contains_key(&key) => due.push(key),
                    Some(Touched::Object(_)) => {}
                    Some(Touched::Kind(kind)) => {
                        due.extend(wanted.keys().filter(|key| key.kind == kind).cloned());
                    }
                },
                Some(ended) = reads.join_next() => {
                    let Ok((key, answer)) = ended else {
                        continue;
                    };
                    let again = reading.remove(&key).unwrap_or(false);
                    if again && wanted.contains_key(&key) {
                        due.push(key.clone());
                    }
                    if matches!(answer, FetchOutcome::Unreadable) && wanted.contains_key(&key) {
                        reading.insert(key.clone(), false);
                        reads.spawn(read(self.replica.clone(), key.clone(), RECHECK_INTERVAL));
                    }
                    if self.inputs.send(Input::Fetched { key, answer }).is_err() {
                        return;
                    }
                }
            }
            for key in due {
                if let Some(again) = reading.get_mut(&key) {
                    *again = true;
                    continue;
                }
                // Other objects are treated as nonexistent. Copies of key sets are in the
                // controller's own namespace.
                let Replica {
                    watched, namespace, ..
                } = &self.replica;
                let is_copy = key.kind == Kind::ConfigMap
                    && key.name.namespace == *namespace
                    && is_copy_name(&key.name.name);
                if !watched.holds(&key.name.namespace) && !is_copy {
                    let answer = FetchOutcome::Missing;
                    if self.inputs.send(Input::Fetched { key, answer }).is_err() {
                        return;
                    }
                    continue;
                }
                reading.insert(key.clone(), false);
                reads.spawn(read(self.replica.clone(), key, Duration::ZERO));
            }
        }
    }
}

/// A starting API server briefly rejects all requests, so only repeated rejections are final.
async fn read(replica: Replica, key: ObjectKey, delay: Duration) -> (ObjectKey, FetchOutcome) {
    tokio::time::sleep(delay).await;
    let resource = api_resource(key.kind, "v1");
    let api: Api<Received> =
        Api::namespaced_with(replica.client.clone(), &key.name.namespace, &resource);
    let mut backoff = READ_BACKOFF;
    let mut forbidden = 0;
    loop {
        match answer(TIMEOUT, api.get_opt(&key.name.name)).await {
            Ok(Some(received)) => {
                let answer = match decode(key.kind, "v1", received.kept.value) {
                    Ok(object) => FetchOutcome::Found(object),
                    Err(why) => {
                        tracing::warn!(object = %key, %why, "cannot decode a referenced object; keeping the last known version");
                        FetchOutcome::Unreadable
                    }
                };
                return (key, answer);
            }
            Ok(None) => return (key, FetchOutcome::Missing),
            Err(kube::Error::Api(status)) if (400..429).contains(&status.code) => {
                forbidden += 1;
                if forbidden >= MAX_REFUSALS {
                    tracing::warn!(object = %key, reason = status.message, "not permitted to read the object");
                    return (key, FetchOutcome::Unreadable);
                }
            }
            Err(error) => replica.failures.record(key.kind.as_str(), &error),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}
