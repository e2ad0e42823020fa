//! Writes the CA certificates of out-of-cluster Gateways (OCGs) to ConfigMaps, for use by a mesh.
//!
//! Never modify a ConfigMap that no MeshOCGPolicy owns, whatever its name and labels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use tokio::sync::watch;

use crate::connection::answer;
use crate::replica::Replica;
use sesame_kinds::api::{NamespacedName, OCG_BUNDLE_LABEL, SESAME_GROUP};
use sesame_kinds::world::Kind;
use sesame_resolver::{OcgBundle, OcgBundles};

/// Interval between polls, which detect edited ConfigMaps and newly granted permissions.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Sesame controllers with another name ignore the ConfigMap.
const CONTROLLER_ANNOTATION: &str = "projectsesame.io/controller";

pub(crate) struct OcgBundleWriter {
    pub(crate) replica: Replica,
    /// `None` until known, and while the feature is disabled.
    pub(crate) desired: watch::Receiver<Option<Arc<OcgBundles>>>,
}

impl OcgBundleWriter {
    pub(crate) async fn run(mut self) {
        let mut last_error: Option<String> = None;
        loop {
            let desired = self.desired.borrow_and_update().clone();
            let leading = *self.replica.leading.borrow_and_update();
            if let Some(desired) = desired.filter(|_| leading) {
                let failed = self.write(&desired).await.err();
                let failed = failed.map(|error| error.to_string());
                if let Some(error) = failed.as_ref().filter(|_| last_error != failed) {
                    tracing::warn!(%error, "cannot write the CA certificates of Gateways for a \
                        mesh; retrying");
                }
                last_error = failed;
            }
            tokio::select! {
                changed = self.desired.changed() => if changed.is_err() { return },
                changed = self.replica.leading.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Continues after errors, and returns the last error.
    async fn write(&self, desired: &OcgBundles) -> kube::Result<()> {
        let mut outcome = Ok(());
        let mut there: BTreeMap<NamespacedName, ConfigMap> = BTreeMap::new();
        for api in self.watched() {
            let listed = ListParams::default().labels(OCG_BUNDLE_LABEL);
            let all = answer(TIMEOUT, api.list(&listed)).await?;
            let ours = all.items.into_iter().filter(|map| self.keeps(map));
            there.extend(ours.map(|map| {
                let namespace = map.namespace().unwrap_or_default();
                (NamespacedName::new(&namespace, &map.name_any()), map)
            }));
        }
        for (name, bundle) in desired {
            let before = there.remove(name);
            let Some(pem) = &bundle.pem else {
                continue;
            };
            let wanted = self.config_map(name, bundle, pem);
            if let Err(error) = self.put(name, wanted, before).await {
                outcome = Err(error);
            }
        }
        for (name, map) in there {
            if let Err(error) = self.delete(&name, &map).await {
                outcome = Err(error);
            }
        }
        outcome
    }

    fn watched(&self) -> Vec<Api<ConfigMap>> {
        let client = || self.replica.client.clone();
        self.replica.watched.each(
            || Api::all(client()),
            |namespace| Api::namespaced(client(), namespace),
        )
    }

    fn keeps(&self, map: &ConfigMap) -> bool {
        let mut owners = map.owner_references().iter();
        let is_policy = |owner: &OwnerReference| {
            owner.api_version.starts_with(SESAME_GROUP)
                && owner.kind == Kind::MeshOcgPolicy.as_str()
                && owner.controller == Some(true)
        };
        let controller = map.annotations().get(CONTROLLER_ANNOTATION);
        owners.any(is_policy) && controller == Some(&self.replica.controller_name)
    }

    fn config_map(&self, name: &NamespacedName, bundle: &OcgBundle, pem: &str) -> ConfigMap {
        let OcgBundle {
            policy,
            uid,
            key,
            pem: _,
            is_written: _,
        } = bundle;
        let pair = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let controller = &self.replica.controller_name;
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.name.clone()),
                namespace: Some(name.namespace.clone()),
                labels: Some(pair(OCG_BUNDLE_LABEL, "true")),
                annotations: Some(pair(CONTROLLER_ANNOTATION, controller)),
                owner_references: Some(vec![OwnerReference {
                    api_version: Kind::MeshOcgPolicy.api_versions().concat(),
                    kind: Kind::MeshOcgPolicy.as_str().to_owned(),
                    name: policy.clone(),
                    uid: uid.clone(),
                    controller: Some(true),
                    block_owner_deletion: None,
                }]),
                ..ObjectMeta::default()
            },
            data: Some(pair(key, pem)),
            ..ConfigMap::default()
        }
    }

    /// Leaves a foreign ConfigMap unchanged; the policy's status reports the conflict.
    async fn put(
        &self,
        name: &NamespacedName,
        mut wanted: ConfigMap,
        before: Option<ConfigMap>,
    ) -> kube::Result<()> {
        let api = self.api(name);
        let parameters = PostParams::default();
        let metrics = &self.replica.metrics;
        let Some(before) = before else {
            metrics.published(Kind::ConfigMap.as_str(), "create");
            return match answer(TIMEOUT, api.create(&parameters, &wanted)).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                created => created.map(|_| {
                    tracing::info!(config_map = %name, "wrote the CA certificates of Gateways for \
                        a mesh");
                }),
            };
        };
        let same = before.data == wanted.data
            && before.metadata.owner_references == wanted.metadata.owner_references;
        if same {
            return Ok(());
        }
        // The write fails if another writer was faster; the next pass compares again.
        wanted.metadata.resource_version = before.metadata.resource_version;
        metrics.published(Kind::ConfigMap.as_str(), "update");
        let replaced = api.replace(&name.name, &parameters, &wanted);
        answer(TIMEOUT, replaced).await.map(|_| ())
    }

    async fn delete(&self, name: &NamespacedName, map: &ConfigMap) -> kube::Result<()> {
        let parameters = DeleteParams::default().preconditions(Preconditions {
            uid: map.uid(),
            resource_version: map.resource_version(),
        });
        let api = self.api(name);
        let metrics = &self.replica.metrics;
        metrics.published(Kind::ConfigMap.as_str(), "delete");
        match answer(TIMEOUT, api.delete(&name.name, &parameters)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(|_| ()),
        }
    }

    fn api(&self, name: &NamespacedName) -> Api<ConfigMap> {
        Api::namespaced(self.replica.client.clone(), &name.namespace)
    }
}
