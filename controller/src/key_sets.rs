//! Stores copies of fetched key sets as ConfigMaps in the controller's namespace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use sesame_key_sets::{KeySetKeeper, KeySetStore};
use sesame_kinds::api::{KEY_SET_LABEL, NamespacedName};
use sesame_kinds::world::Kind;
use sesame_proto::key_sets::{KeySetCopies, KeySetCopy, KeySetRequests};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use crate::connection::answer;
use crate::replica::Replica;
use crate::watch::Touched;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs until the engine stops, and fetches only as leader.
pub(crate) async fn keep_key_sets(
    replica: Replica,
    requests: watch::Receiver<Option<Arc<KeySetRequests>>>,
    touched: UnboundedSender<Touched>,
) {
    let (active, metrics) = (replica.leading.clone(), Arc::clone(&replica.metrics));
    let keeper = KeySetKeeper {
        store: ConfigMaps { replica, touched },
        requests,
        active,
    };
    keeper.run(|copies| metrics.key_sets(copies)).await;
}

struct ConfigMaps {
    replica: Replica,
    /// Announces written copies, because the controller's own namespace is not always watched.
    touched: UnboundedSender<Touched>,
}

impl ConfigMaps {
    fn api(&self) -> Api<ConfigMap> {
        let Replica {
            client, namespace, ..
        } = &self.replica;
        Api::namespaced(client.clone(), namespace)
    }

    fn announce(&self, name: &str) {
        let name = NamespacedName::new(&self.replica.namespace, name);
        // An error means that the controller is stopping.
        let _ = self
            .touched
            .send(Touched::Object(Kind::ConfigMap.named(name)));
    }

    /// Identifies this controller's copies, because other controllers may share the namespace.
    fn label(&self) -> (String, String) {
        let mut digest = sesame_proto::digest::sha256(self.replica.controller_name.as_bytes());
        digest.truncate(16);
        (KEY_SET_LABEL.to_owned(), digest)
    }
}

impl KeySetStore for ConfigMaps {
    async fn load(&self) -> Result<KeySetCopies, String> {
        let (label, value) = self.label();
        let listed = ListParams::default().labels(&format!("{label}={value}"));
        let all = answer(TIMEOUT, self.api().list(&listed)).await;
        let all = all.map_err(|error| error.to_string())?.items.into_iter();
        let copies = all.map(|map| {
            let copy = KeySetCopy::from_data(map.data.as_ref().unwrap_or(&BTreeMap::new()));
            (map.name_any(), copy)
        });
        Ok(copies.collect())
    }

    async fn save(&self, name: &str, copy: &KeySetCopy) -> Result<(), String> {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.replica.namespace.clone()),
                labels: Some(BTreeMap::from([self.label()])),
                ..ObjectMeta::default()
            },
            data: Some(copy.to_data()),
            ..ConfigMap::default()
        };
        let (api, parameters) = (self.api(), PostParams::default());
        let metrics = &self.replica.metrics;
        metrics.published(Kind::ConfigMap.as_str(), "update");
        let mut saved = answer(TIMEOUT, api.replace(name, &parameters, &map)).await;
        if matches!(&saved, Err(kube::Error::Api(status)) if status.code == 404) {
            metrics.published(Kind::ConfigMap.as_str(), "create");
            saved = answer(TIMEOUT, api.create(&parameters, &map)).await;
        }
        saved.map_err(|error| error.to_string())?;
        self.announce(name);
        Ok(())
    }

    async fn remove(&self, name: &str) -> Result<(), String> {
        let metrics = &self.replica.metrics;
        metrics.published(Kind::ConfigMap.as_str(), "delete");
        match answer(TIMEOUT, self.api().delete(name, &DeleteParams::default())).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(_) => {
                self.announce(name);
                Ok(())
            }
        }
    }
}
