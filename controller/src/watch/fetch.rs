//! Reading the Secrets and ConfigMaps that are referred to, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use kube::Client;
use kube::api::Api;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::backoff::Pauses;
use super::kinds::decode;
use super::{Incoming, api_resource};
use crate::engine::Input;
use crate::world::{AnyObject, Kind, ObjectKey};

/// How long one read may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a watch of metadata noticed.
#[derive(Debug)]
pub(crate) enum Touched {
    /// Something happened to this object.
    Object(ObjectKey),
    /// The kind was listed anew: any object may have changed.
    Kind(Kind),
}

/// The objects that are wanted, shared with the engine.
pub(crate) type References = Arc<BTreeSet<ObjectKey>>;

/// Reads what is referred to: when it is first wanted, and whenever something happens to it.
pub(crate) struct Fetcher {
    pub(crate) client: Client,
    pub(crate) references: watch::Receiver<References>,
    pub(crate) touched: UnboundedReceiver<Touched>,
    pub(crate) inputs: Sender<Input>,
}

impl Fetcher {
    /// Runs until nobody wants anything any more.
    pub(crate) async fn run(mut self) {
        let mut wanted = References::default();
        // Objects being read, and whether something happened to them since.
        let mut reading: BTreeMap<ObjectKey, bool> = BTreeMap::new();
        let mut reads = JoinSet::new();
        loop {
            let mut due: Vec<ObjectKey> = Vec::new();
            tokio::select! {
                changed = self.references.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let before = wanted;
                    wanted = Arc::clone(&self.references.borrow_and_update());
                    due.extend(wanted.difference(&before).cloned());
                }
                touched = self.touched.recv() => match touched {
                    None => return,
                    Some(Touched::Object(key)) if wanted.contains(&key) => due.push(key),
                    Some(Touched::Object(_)) => {}
                    Some(Touched::Kind(kind)) => {
                        due.extend(wanted.iter().filter(|key| key.kind == kind).cloned());
                    }
                },
                Some(read) = reads.join_next() => {
                    let Ok((key, object)): Result<(ObjectKey, _), _> = read else {
                        continue;
                    };
                    let again = reading.remove(&key).unwrap_or(false);
                    if again && wanted.contains(&key) {
                        due.push(key.clone());
                    }
                    if self.inputs.send(Input::Fetched { key, object }).is_err() {
                        return;
                    }
                }
            }
            for key in due {
                if let Some(again) = reading.get_mut(&key) {
                    *again = true;
                    continue;
                }
                reading.insert(key.clone(), false);
                reads.spawn(read(self.client.clone(), key));
            }
        }
    }
}

/// Reads until there is a definite answer: the object, that there is none, or that it is none of our business.
async fn read(client: Client, key: ObjectKey) -> (ObjectKey, Option<AnyObject>) {
    let resource = api_resource(key.kind, "v1");
    let api: Api<Incoming> = Api::namespaced_with(client, &key.name.namespace, &resource);
    let mut pauses = Pauses::default();
    loop {
        let answer = tokio::time::timeout(TIMEOUT, api.get_opt(&key.name.name)).await;
        match answer {
            Ok(Ok(Some(incoming))) => {
                let object = decode(key.kind, "v1", incoming.value)
                    .inspect_err(|why| tracing::warn!(object = %key, %why, "skipped"));
                return (key, object.ok());
            }
            Ok(Ok(None)) => return (key, None),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 403 | 405) => {
                tracing::warn!(object = %key, reason = status.message, "it may not be read; it counts as missing");
                return (key, None);
            }
            Ok(Err(error)) => tracing::warn!(object = %key, %error, "it cannot be read yet"),
            Err(_) => {
                tracing::warn!(object = %key, "it cannot be read yet: no answer in {TIMEOUT:?}")
            }
        }
        if let Some(pause) = pauses.next() {
            tokio::time::sleep(pause).await;
        }
    }
}
