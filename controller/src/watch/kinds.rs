//! Watches all objects that resolution needs.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, GroupVersionKind, NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::watcher;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::definitions::{UnreadCertificates, readable_certificates};
use super::fetch::Touched;
use super::pods::KnownXBackends;
use super::{
    Input, ObjectWatch, Received, StoredStatus, WatchEvent, WatchedObject, api_resource, follow,
    watch_config, watched_apis,
};
use crate::connection::answer;
use crate::replica::Replica;
use crate::retry::READ_BACKOFF;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::decode::decode_value;
use sesame_kinds::world::{AnyObject, Kind, ObjectKey};

const RECHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Delay before retrying a kind that the API server served before.
pub(super) const UNSERVED_PAUSE: Duration = Duration::from_secs(1);
/// Number of rejections after which the ClusterRole is assumed to lack the permission.
const REFUSALS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(10);

const NOT_INSTALLED: &str = "it is not installed";
const NOT_SERVED_HERE: &str = "the API server does not serve it";
const CERTIFICATES_FORBIDDEN: &str = "the controller's ClusterRole does not permit listing \
    clustertrustbundles.certificates.k8s.io; apply this release's ClusterRole, and the kind is \
    read shortly afterwards";
const INGRESSES_FORBIDDEN: &str = "the controller's ClusterRole does not permit listing this \
    kind of networking.k8s.io; apply this release's ClusterRole, and the kind is read shortly \
    afterwards";
const DEFINITION_FORBIDDEN: &str = "the controller's ClusterRole does not permit reading the \
    kind's definition; apply this release's ClusterRole, and the kind is read shortly afterwards";
const NO_SUPPORTED_VERSION: &str =
    "its definition serves no supported version; install newer definitions";

/// The replica waits until the CRDs of these kinds have been found once, because empty kinds would
/// withdraw all publications. It does not wait if its configuration implies a Gateway, unless a CRD
/// serves only unsupported versions.
const NEEDED: [Kind; 2] = [Kind::GatewayClass, Kind::Gateway];

/// Kinds that all releases serve in a supported version. If a CRD does not, objects exist, but cannot
/// be read. Older releases have only alpha versions of other kinds.
const STABLE: [Kind; 4] = [
    Kind::GatewayClass,
    Kind::Gateway,
    Kind::HttpRoute,
    Kind::GrpcRoute,
];

/// Required kinds that have never been available, and why.
pub(crate) type AwaitedKinds = BTreeMap<Kind, &'static str>;

/// Returns true if ClusterRoles from earlier releases grant no access to this kind.
fn is_newer(kind: Kind) -> bool {
    kind.is_experimental()
        || kind.is_contour()
        || matches!(
            kind,
            Kind::RouteFilter | Kind::BackendPolicy | Kind::TrafficPolicy | Kind::AccessPolicy
        )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    Awaited,
    Empty,
}

#[derive(Clone)]
pub(crate) struct Watches {
    pub(crate) replica: Replica,
    pub(crate) inputs: Sender<Input>,
    pub(crate) touched: UnboundedSender<Touched>,
    pub(crate) awaited: watch::Sender<AwaitedKinds>,
    /// True if the configuration replaces the Gateway object.
    pub(crate) implies_gateway: watch::Receiver<bool>,
    pub(crate) extra_minimal_ocg: bool,
    pub(crate) x_backends: KnownXBackends,
}

impl Watches {
    pub(crate) fn spawn(&self, tasks: &mut JoinSet<()>) {
        for kind in Kind::ALL.iter().copied() {
            let watches = self.clone();
            let is_disabled = kind.is_of_extra_minimal_ocg() && !self.extra_minimal_ocg;
            if is_disabled || !self.replica.layers.holds(kind) {
                // Ignore the result, because the other watches also notice a stopped engine.
                self.pass_on(kind, WatchEvent::Listed(Vec::new()));
                continue;
            }
            let task = match kind {
                Kind::Secret => async move { watches.metadata::<Secret>(kind).await }.boxed(),
                Kind::ConfigMap => async move { watches.metadata::<ConfigMap>(kind).await }.boxed(),
                Kind::Pod => async move { watches.pods().await }.boxed(),
                _ => async move { watches.objects(kind).await }.boxed(),
            };
            tasks.spawn(task);
        }
    }

    async fn objects(&self, kind: Kind) {
        let manager = self.replica.field_manager();
        let mut absence = None;
        let mut needed = NEEDED.contains(&kind);
        loop {
            let served = self.served_version(kind).await;
            let Ok(version) = &served else {
                let why = served.err().unwrap_or_default();
                let implied = *self.implies_gateway.borrow();
                let unread = why == NO_SUPPORTED_VERSION && STABLE.contains(&kind);
                let now = if unread || needed && !implied {
                    Absence::Awaited
                } else {
                    Absence::Empty
                };
                if absence != Some(now) && !self.report_absence(kind, now, why) {
                    return;
                }
                absence = Some(now);
                tokio::time::sleep(RECHECK_INTERVAL).await;
                continue;
            };
            // From now on, a missing CRD means that all its objects are gone.
            needed = false;
            self.awaited
                .send_if_modified(|all| all.remove(&kind).is_some());
            absence = None;
            let apis = watched_apis(&self.replica, kind, version).into_iter();
            let watches = apis.map(|api: Api<Received>| watcher(api, self.config(kind)));
            let keep = |received| observe((kind, version), received, &manager);
            let take = |event| self.pass_on(kind, event);
            if !follow(watches.collect(), keep, take, |error| {
                self.failed(kind, error);
            })
            .await
            {
                return;
            }
            tokio::time::sleep(UNSERVED_PAUSE).await;
        }
    }

    /// Returns false once the engine has stopped.
    fn report_absence(&self, kind: Kind, absence: Absence, why: &'static str) -> bool {
        match absence {
            Absence::Awaited => {
                self.awaited.send_modify(|all| {
                    all.insert(kind, why);
                });
                let effect = if why == NO_SUPPORTED_VERSION {
                    "its objects cannot be read; known objects stay in effect"
                } else {
                    "publications stay unchanged"
                };
                tracing::warn!(%kind, why, "waiting for the definitions of the Gateway API; \
                    {effect}");
                true
            }
            Absence::Empty => {
                self.awaited
                    .send_if_modified(|all| all.remove(&kind).is_some());
                tracing::info!(%kind, why, "treating the kind as empty");
                self.pass_on(kind, WatchEvent::Listed(Vec::new()))
            }
        }
    }

    /// Watches only metadata; referenced objects are read one by one.
    async fn metadata<K>(&self, kind: Kind)
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        let client = || self.replica.client.clone();
        let apis: Vec<Api<PartialObjectMeta<K>>> = self.replica.watched.each(
            || Api::all(client()),
            |namespace| Api::namespaced(client(), namespace),
        );
        let keep = |object: PartialObjectMeta<K>| ObjectKey {
            kind,
            name: NamespacedName {
                namespace: object.namespace().unwrap_or_default(),
                name: object.name_any(),
            },
        };
        let take = |event| {
            let touched = match event {
                Err(_) => return true,
                Ok(WatchEvent::Listed(_)) => Touched::Kind(kind),
                Ok(WatchEvent::Applied(key) | WatchEvent::Deleted(key)) => Touched::Object(key),
            };
            self.touched.send(touched).is_ok()
        };
        let config = self.config(kind);
        let watch = ObjectWatch::for_apis(&self.replica, kind.as_str(), apis, config);
        watch.run(UNSERVED_PAUSE, keep, take).await;
    }

    pub(super) fn config(&self, kind: Kind) -> watcher::Config {
        let config = watch_config();
        if kind.cluster_scoped() || kind == Kind::SesameConfiguration {
            return config;
        }
        // Exclude Sesame's own publications from the watch.
        config.fields(&format!("metadata.namespace!={}", self.replica.namespace))
    }

    pub(super) fn pass_on(&self, kind: Kind, event: WatchEvent<WatchedObject>) -> bool {
        if kind == Kind::XBackend {
            self.x_backends.record(&event);
        }
        let seen = SystemTime::now();
        let input = Input::Watched { kind, event, seen };
        self.inputs.send(input).is_ok()
    }

    pub(super) fn failed(&self, kind: Kind, error: &watcher::Error) {
        self.replica.metrics.watch_failed(kind.as_str());
        self.replica.failures.record(kind.as_str(), error);
    }

    /// Reads the CRD, because a starting API server returns "not found" even for existing kinds.
    async fn served_version(&self, kind: Kind) -> Result<String, &'static str> {
        let known = kind.api_versions();
        if kind == Kind::ClusterTrustBundle {
            let asked = || readable_certificates(&self.replica.client);
            let what = "cannot determine whether the API server serves the kind";
            let found = self.ask(kind, what, asked).await;
            return found.map(str::to_owned).map_err(|why| match why {
                UnreadCertificates::NotServed => NOT_SERVED_HERE,
                UnreadCertificates::Forbidden => {
                    self.replica.metrics.watch_failed(kind.as_str());
                    CERTIFICATES_FORBIDDEN
                }
            });
        }
        if matches!(kind, Kind::Ingress | Kind::IngressClass) {
            self.ask_for_ingresses(kind).await?;
        }
        let Some(group) = kind.group_of_definition() else {
            let version = known.first().ok_or(NO_SUPPORTED_VERSION)?;
            return Ok((*version).to_owned());
        };
        let resource =
            GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let resource = ApiResource::from_gvk(&resource);
        let definitions: Api<Received> = Api::all_with(self.replica.client.clone(), &resource);
        let plural = api_resource(kind, "").plural;
        let name = format!("{plural}.{group}");
        let asked = async || match answer(TIMEOUT, definitions.get_opt(&name)).await {
            // The ClusterRole predates support for this kind.
            Err(kube::Error::Api(status)) if status.code == 403 && is_newer(kind) => {
                Ok(Err(DEFINITION_FORBIDDEN))
            }
            found => found.map(|found| found.ok_or(NOT_INSTALLED)),
        };
        let what = "the kind's definition cannot be read";
        let definition = self.ask(kind, what, asked).await?;
        let served = |version: &&&str| serves(definition.value(), version);
        let version = known.iter().find(served).ok_or(NO_SUPPORTED_VERSION)?;
        Ok((*version).to_owned())
    }

    /// Fails if the ClusterRole predates support for this kind.
    async fn ask_for_ingresses(&self, kind: Kind) -> Result<(), &'static str> {
        let version = kind.api_versions().first().ok_or(NO_SUPPORTED_VERSION)?;
        let apis: Vec<Api<Received>> = watched_apis(&self.replica, kind, version);
        let api = apis.first().ok_or(NO_SUPPORTED_VERSION)?;
        let one = ListParams::default().limit(1);
        let asked = async || match answer(TIMEOUT, api.list_metadata(&one)).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                self.replica.metrics.watch_failed(kind.as_str());
                Ok(Err(INGRESSES_FORBIDDEN))
            }
            found => found.map(|_| Ok(())),
        };
        let mut answer = Ok(());
        for _ in 0..REFUSALS {
            answer = self.ask(kind, "the kind cannot be listed", &asked).await;
            if answer.is_ok() {
                break;
            }
            // A starting API server also rejects requests, and an empty kind would withdraw routes.
            tokio::time::sleep(UNSERVED_PAUSE).await;
        }
        answer
    }

    /// Repeats the request until it succeeds.
    async fn ask<T, F>(&self, kind: Kind, what: &str, question: impl Fn() -> F) -> T
    where
        F: Future<Output = kube::Result<T>>,
    {
        let mut backoff = READ_BACKOFF;
        loop {
            match question().await {
                Ok(answer) => return answer,
                Err(error) => {
                    self.replica.metrics.watch_failed(kind.as_str());
                    let subject = format!("{kind} ({what})");
                    self.replica.failures.record(&subject, &error);
                }
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }
}

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

/// The status stays a JSON string.
pub(super) fn observe(
    (kind, api_version): (Kind, &str),
    received: Received,
    manager: &str,
) -> WatchedObject {
    WatchedObject {
        name: received.name(),
        stored: StoredStatus::of(kind, api_version, &received, manager),
        object: decode(kind, api_version, received.kept.value),
    }
}

pub(super) fn decode(kind: Kind, api_version: &str, value: Value) -> Result<AnyObject, String> {
    let decoded = decode_value(value, kind, api_version);
    decoded.map_or_else(|e| Err(e.reason.to_string()), |decoded| Ok(decoded.object))
}
