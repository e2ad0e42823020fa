//! The watches of everything that resolution reads.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use super::backoff::Pauses;
use super::fetch::Touched;
use super::resource::{api_resource, plural};
use super::{Incoming, Seen, follow, watch_config};
use crate::engine::{Input, Observed};
use crate::report::Stored;
use crate::serve::Metrics;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::decode::decode_value;
use sesame_gateway_api::world::{AnyObject, Kind, ObjectKey};

/// How often a kind that is not installed is looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// After "not found" of a kind that was there.
const NOT_SERVED: Duration = Duration::from_secs(1);
/// How long the API server may take to say what is installed.
const TIMEOUT: Duration = Duration::from_secs(10);

const NOT_INSTALLED: &str = "it is not installed";
const NONE_READ: &str =
    "its definition serves no version that is read; install newer definitions of the Gateway API";

/// What every watch needs.
#[derive(Clone)]
pub(crate) struct Watches {
    pub(crate) client: Client,
    /// Sesame's own, which is left out.
    pub(crate) namespace: String,
    pub(crate) inputs: Sender<Input>,
    pub(crate) touched: UnboundedSender<Touched>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Watches {
    /// Starts them all.
    pub(crate) fn spawn(&self, tasks: &mut JoinSet<()>) {
        for kind in Kind::ALL.iter().copied() {
            let watches = self.clone();
            let task = match kind {
                Kind::Secret => async move { watches.metadata::<Secret>(kind).await }.boxed(),
                Kind::ConfigMap => async move { watches.metadata::<ConfigMap>(kind).await }.boxed(),
                _ => async move { watches.objects(kind).await }.boxed(),
            };
            tasks.spawn(task);
        }
    }

    /// Watches a kind whose objects are kept.
    async fn objects(&self, kind: Kind) {
        let mut absent = false;
        loop {
            let served = self.served_version(kind).await;
            let Ok(version) = &served else {
                if !absent {
                    let why = served.err().unwrap_or_default();
                    tracing::info!(%kind, why, "the kind counts as empty");
                    if !self.pass_on(kind, Seen::All(Vec::new())) {
                        return;
                    }
                }
                absent = true;
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            };
            absent = false;
            let api: Api<Incoming> =
                Api::all_with(self.client.clone(), &api_resource(kind, version));
            let watch = watcher(api, self.config(kind));
            let keep = |incoming| observe(kind, version, incoming);
            let take = |seen| self.pass_on(kind, seen);
            if !follow(watch, keep, take, |error| self.failed(kind, error)).await {
                return;
            }
            tokio::time::sleep(NOT_SERVED).await;
        }
    }

    /// Watches the metadata of a kind whose objects are read one by one.
    async fn metadata<K>(&self, kind: Kind)
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        let api: Api<PartialObjectMeta<K>> = Api::all(self.client.clone());
        let keep = |object: PartialObjectMeta<K>| ObjectKey {
            kind,
            name: NamespacedName {
                namespace: object.namespace().unwrap_or_default(),
                name: object.name_any(),
            },
        };
        let take = |seen| {
            let touched = match seen {
                Seen::All(_) => Touched::Kind(kind),
                Seen::One(key) | Seen::Gone(key) => Touched::Object(key),
            };
            self.touched.send(touched).is_ok()
        };
        loop {
            let watch = watcher(api.clone(), self.config(kind));
            if !follow(watch, keep, take, |error| self.failed(kind, error)).await {
                return;
            }
            tokio::time::sleep(NOT_SERVED).await;
        }
    }

    fn config(&self, kind: Kind) -> watcher::Config {
        let config = watch_config();
        if kind.cluster_scoped() {
            return config;
        }
        config.fields(&format!("metadata.namespace!={}", self.namespace))
    }

    fn pass_on(&self, kind: Kind, seen: Seen<Observed>) -> bool {
        self.inputs.send(Input::Seen { kind, seen }).is_ok()
    }

    fn failed(&self, kind: Kind, error: &watcher::Error) {
        self.metrics.watch_failed(kind.as_str());
        tracing::warn!(%kind, %error, "a watch failed; it is started again, and what was known stays");
    }

    /// The newest version of the kind that we read and the API server serves, or why there is none.
    ///
    /// The definition itself is asked for: an API server that is just starting says "not found" of kinds that it has.
    async fn served_version(&self, kind: Kind) -> Result<String, &'static str> {
        let known = kind.api_versions();
        if !kind.is_gateway_api() {
            let version = known.first().ok_or(NONE_READ)?;
            return Ok((*version).to_owned());
        }
        let resource = kube::core::ApiResource {
            group: "apiextensions.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "apiextensions.k8s.io/v1".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
        };
        let definitions: Api<Incoming> = Api::all_with(self.client.clone(), &resource);
        let name = format!(
            "{}.{}",
            plural(kind),
            sesame_gateway_api::api::GATEWAY_GROUP
        );
        let mut pauses = Pauses::default();
        loop {
            let answer = tokio::time::timeout(TIMEOUT, definitions.get_opt(&name)).await;
            match answer {
                Ok(Ok(definition)) => {
                    let definition = definition.ok_or(NOT_INSTALLED)?;
                    let served = |version: &&&str| serves(&definition.value, version);
                    let version = known.iter().find(served).ok_or(NONE_READ)?;
                    return Ok((*version).to_owned());
                }
                Ok(Err(error)) => {
                    self.metrics.watch_failed(kind.as_str());
                    tracing::warn!(%kind, %error, "the kind's definition cannot be read; trying again");
                }
                Err(_) => {
                    self.metrics.watch_failed(kind.as_str());
                    tracing::warn!(%kind, "the kind's definition cannot be read; trying again: no answer in {TIMEOUT:?}");
                }
            }
            if let Some(pause) = pauses.next() {
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Whether the definition serves `group/version`.
fn serves(definition: &Value, api_version: &str) -> bool {
    let wanted = api_version.rsplit('/').next().unwrap_or(api_version);
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    versions.into_iter().flatten().any(|version| {
        version.get("served") == Some(&Value::Bool(true))
            && version.get("name").and_then(Value::as_str) == Some(wanted)
    })
}

/// Decodes what arrived; its status is kept as text, for the next write to start from.
fn observe(kind: Kind, api_version: &str, incoming: Incoming) -> Observed {
    let name = incoming.name();
    let stored = Stored::of(kind, api_version, &incoming);
    Observed {
        name,
        object: decode(kind, api_version, incoming.value),
        stored,
    }
}

/// The object, or why it is not one.
pub(super) fn decode(kind: Kind, api_version: &str, value: Value) -> Result<AnyObject, String> {
    match decode_value(value, kind, api_version) {
        Ok(decoded) => Ok(decoded.object),
        Err(error) => Err(error.reason.to_string()),
    }
}
