//! Holds a GatewayClass while a Gateway uses it: the API's finalizer has a class that is deleted wait until its last
//! Gateway is gone, so that no slip withdraws all Gateways of a class at once.
//!
//! The finalizer is added and removed by the leader alone, only on classes that name this controller, and only when all
//! classes and Gateways are known. Nothing else of a class is ever written here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::serve::Metrics;
use crate::watch::{Received, WatchEvent, api_resource, follow, watch_config};
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::world::Kind;

/// Finalizer that the Gateway API defines for this.
const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";
const API_VERSION: &str = "gateway.networking.k8s.io/v1";
const FIELD_MANAGER: &str = "sesame-controller";
/// Time that one write may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a write that failed, or a watch that ended, is tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// Everything the task owns.
pub(crate) struct Finalizer {
    pub(crate) client: Client,
    pub(crate) controller_name: String,
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Fields of a GatewayClass that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    version: String,
    controller: String,
    finalizers: Vec<String>,
    deleted: bool,
}

/// A class or a Gateway, by name.
#[derive(Debug)]
enum Object {
    Class(String, Class),
    /// Gateway, and the class that it names.
    Gateway(NamespacedName, String),
}

/// GatewayClasses, and the Gateways that use them.
#[derive(Debug, Default)]
struct ClassUsage {
    listed: BTreeSet<Kind>,
    classes: BTreeMap<String, Class>,
    gateways: BTreeMap<NamespacedName, String>,
}

impl Finalizer {
    /// Runs until the senders of its channels are gone.
    pub(crate) async fn run(mut self) {
        let (events, mut seen) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        for kind in [Kind::GatewayClass, Kind::Gateway] {
            watches.spawn(self.watch(kind, events.clone()));
        }
        drop(events);
        let mut usage = ClassUsage::default();
        let mut retries: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            let next_try = retries.values().min().copied();
            tokio::select! {
                event = seen.recv() => match event {
                    Some((kind, event)) => usage.take(kind, event),
                    None => return,
                },
                changed = self.leading.changed() => if changed.is_err() { return },
                Some(()) = OptionFuture::from(next_try.map(sleep_until)) => {}
            }
            while let Ok((kind, event)) = seen.try_recv() {
                usage.take(kind, event);
            }
            if usage.listed.len() < 2 {
                continue;
            }
            let now = Instant::now();
            retries.retain(|_, at| *at > now);
            for (name, finalizers) in usage.plan(&self.controller_name) {
                if retries.contains_key(&name) || !*self.leading.borrow_and_update() {
                    continue;
                }
                match self.write(&name, &usage, &finalizers).await {
                    Ok(Object::Class(name, class)) => {
                        usage.classes.insert(name, class);
                    }
                    Ok(Object::Gateway(..)) => {}
                    Err(why) => {
                        tracing::warn!(
                            class = name,
                            "its finalizer cannot be written and is tried again: {why}"
                        );
                        retries.insert(name, Instant::now() + PAUSE);
                    }
                }
            }
        }
    }

    fn watch(
        &self,
        kind: Kind,
        events: UnboundedSender<(Kind, WatchEvent<Object>)>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let api: Api<Received> =
            Api::all_with(self.client.clone(), &api_resource(kind, API_VERSION));
        let metrics = Arc::clone(&self.metrics);
        async move {
            let take = |seen| events.send((kind, seen)).is_ok();
            let keep = move |received: Received| Object::of(kind, &received);
            let fail = |error: &watcher::Error| {
                metrics.watch_failed(kind.as_str());
                tracing::warn!(kind = kind.as_str(), %error, "a watch of GatewayClasses and their Gateways failed; it is started again");
            };
            while follow(watcher(api.clone(), watch_config()), keep, take, fail).await {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Replaces the finalizers of a class, unless somebody else has changed it meanwhile; returns the class as it is then.
    async fn write(
        &self,
        name: &str,
        usage: &ClassUsage,
        finalizers: &[String],
    ) -> Result<Object, String> {
        let version = usage.classes.get(name).map(|class| class.version.as_str());
        let resource = api_resource(Kind::GatewayClass, API_VERSION);
        let api: Api<Received> = Api::all_with(self.client.clone(), &resource);
        let body = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&body);
        self.metrics.published(Kind::GatewayClass.as_str(), "patch");
        match tokio::time::timeout(TIMEOUT, api.patch(name, &parameters, &patch)).await {
            Ok(Ok(stored)) => Ok(Object::of(Kind::GatewayClass, &stored)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer in {TIMEOUT:?}")),
        }
    }
}

impl Object {
    fn of(kind: Kind, received: &Received) -> Self {
        let NamespacedName { namespace, name } = received.name();
        let text = |pointer: &str| {
            let value = received.value().pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        if kind == Kind::Gateway {
            let class = text("/spec/gatewayClassName");
            return Self::Gateway(NamespacedName { namespace, name }, class);
        }
        let finalizers = received.value().pointer("/metadata/finalizers");
        let finalizers = finalizers.and_then(Value::as_array).into_iter().flatten();
        let class = Class {
            version: received.version().to_owned(),
            controller: text("/spec/controllerName"),
            finalizers: finalizers
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
            deleted: received
                .value()
                .pointer("/metadata/deletionTimestamp")
                .is_some(),
        };
        Self::Class(name, class)
    }
}

impl ClassUsage {
    fn take(&mut self, kind: Kind, seen: WatchEvent<Object>) {
        match seen {
            WatchEvent::Listed(all) => {
                match kind {
                    Kind::Gateway => self.gateways.clear(),
                    _ => self.classes.clear(),
                }
                self.listed.insert(kind);
                for object in all {
                    self.put(object);
                }
            }
            WatchEvent::Applied(object) => self.put(object),
            WatchEvent::Deleted(Object::Class(name, _)) => {
                self.classes.remove(&name);
            }
            WatchEvent::Deleted(Object::Gateway(name, _)) => {
                self.gateways.remove(&name);
            }
        }
    }

    fn put(&mut self, object: Object) {
        match object {
            Object::Class(name, class) => {
                let number = |class: &Class| class.version.parse::<u64>().unwrap_or(0);
                let known = self.classes.get(&name);
                // The answer to a write may overtake the watch.
                if known.is_none_or(|known| number(known) <= number(&class)) {
                    self.classes.insert(name, class);
                }
            }
            Object::Gateway(name, class) => {
                self.gateways.insert(name, class);
            }
        }
    }

    /// Returns the new finalizers of each class whose finalizers have to change. Those of others stay, in their order.
    fn plan(&self, controller_name: &str) -> Vec<(String, Vec<String>)> {
        let used: BTreeSet<&String> = self.gateways.values().collect();
        let ours = self.classes.iter();
        let ours = ours.filter(|(_, class)| class.controller == controller_name);
        ours.filter_map(|(name, class)| {
            let has = class.finalizers.iter().any(|held| held == FINALIZER);
            let mut finalizers = class.finalizers.clone();
            match (used.contains(name), has) {
                // The API adds no finalizer to an object that is being deleted.
                (true, false) if !class.deleted => finalizers.push(FINALIZER.to_owned()),
                (false, true) => finalizers.retain(|held| held != FINALIZER),
                _ => return None,
            }
            Some((name.clone(), finalizers))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_of_ours_is_held_while_a_gateway_uses_it_and_no_other_is_touched() {
        let class = |controller: &str, finalizers: &[&str], deleted| Class {
            version: "1".to_owned(),
            controller: controller.to_owned(),
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
            deleted,
        };
        let mut usage = ClassUsage::default();
        for (name, class) in [
            ("used", class("ours", &["other"], false)),
            ("held", class("ours", &[FINALIZER], true)),
            ("late", class("ours", &["other"], true)),
            ("free", class("ours", &[FINALIZER, "other"], false)),
            ("theirs", class("theirs", &[FINALIZER], false)),
        ] {
            usage.classes.insert(name.to_owned(), class);
        }
        for name in ["used", "held", "late"] {
            let gateway = NamespacedName::new("default", name);
            usage.gateways.insert(gateway, name.to_owned());
        }
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let wanted = [
            ("free".to_owned(), texts(&["other"])),
            ("used".to_owned(), texts(&["other", FINALIZER])),
        ];
        assert_eq!(usage.plan("ours"), wanted);
    }
}
