//! Watches the Pods in namespaces that contain XBackends. Until the XBackends are known, no Pods
//! are reported, because an empty list would withdraw endpoints.

use std::collections::BTreeSet;

use kube::api::Api;
use kube::runtime::watcher;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::Kind;
use tokio::sync::watch;

use super::kinds::{UNSERVED_PAUSE, Watches, observe};
use super::{Received, WatchEvent, WatchedObject, api_resource, follow};

/// `None` until XBackends have been listed.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownXBackends(watch::Sender<Option<BTreeSet<NamespacedName>>>);

impl KnownXBackends {
    pub(super) fn record(&self, event: &WatchEvent<WatchedObject>) {
        self.0.send_modify(|known| match event {
            WatchEvent::Listed(all) => {
                *known = Some(all.iter().map(|it| it.name.clone()).collect());
            }
            WatchEvent::Applied(object) => {
                known.get_or_insert_default().insert(object.name.clone());
            }
            WatchEvent::Deleted(object) => {
                known.get_or_insert_default().remove(&object.name);
            }
        });
    }
}

/// Returns `None` if the sender was dropped.
async fn other(
    known: &mut watch::Receiver<Option<BTreeSet<NamespacedName>>>,
    namespaces: Option<&BTreeSet<String>>,
) -> Option<BTreeSet<String>> {
    let of = |known: &BTreeSet<NamespacedName>| -> BTreeSet<String> {
        known.iter().map(|name| name.namespace.clone()).collect()
    };
    let differs = |known: &Option<BTreeSet<NamespacedName>>| {
        let known = known.as_ref().map(of);
        known.is_some() && known.as_ref() != namespaces
    };
    let found = known.wait_for(differs).await.ok()?;
    found.as_ref().map(of)
}

impl Watches {
    pub(super) async fn pods(&self) {
        let kind = Kind::Pod;
        let version = kind.api_versions().first().copied().unwrap_or_default();
        let resource = api_resource(kind, version);
        let mut known = self.x_backends.0.subscribe();
        let mut next = other(&mut known, None).await;
        while let Some(namespaces) = next.take() {
            if namespaces.is_empty() && !self.pass_on(kind, WatchEvent::Listed(Vec::new())) {
                return;
            }
            let followed = async {
                if namespaces.is_empty() {
                    return std::future::pending().await;
                }
                loop {
                    let watches = namespaces.iter().map(|namespace| {
                        let client = self.replica.client.clone();
                        let api: Api<Received> = Api::namespaced_with(client, namespace, &resource);
                        watcher(api, self.config(kind))
                    });
                    let keep = |received| observe((kind, version), received, "");
                    let take = |event| self.pass_on(kind, event);
                    let fail = |error: &watcher::Error| self.failed(kind, error);
                    if !follow(watches.collect(), keep, take, fail).await {
                        return;
                    }
                    tokio::time::sleep(UNSERVED_PAUSE).await;
                }
            };
            tokio::select! {
                () = followed => return,
                found = other(&mut known, Some(&namespaces)) => next = found,
            }
        }
    }
}
