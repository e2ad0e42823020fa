//! Protects a GatewayClass from deletion while a Gateway uses it. Only the leader writes
//! finalizers, and only once all classes and Gateways are known.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::OptionFuture;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::connection::answer;
use crate::replica::Replica;
use crate::watch::{ObjectWatch, Received, WatchEvent, api_resource, watch_config, watched_apis};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::Kind;

/// Defined by the Gateway API.
const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";
const API_VERSION: &str = "gateway.networking.k8s.io/v1";
const FIELD_MANAGER: &str = "sesame-controller";
const TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(5);

pub(crate) struct Finalizer {
    pub(crate) replica: Replica,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ClassOrGateway {
    version: String,
    /// For a class, its controller name; for a Gateway, its class.
    names: String,
    finalizers: Vec<String>,
    deleted: bool,
}

#[derive(Debug, Default)]
struct ClassUsage {
    listed: BTreeSet<Kind>,
    known: BTreeMap<(Kind, NamespacedName), ClassOrGateway>,
}

impl Finalizer {
    pub(crate) async fn run(mut self) {
        let (events, mut seen) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        for kind in [Kind::GatewayClass, Kind::Gateway] {
            watches.spawn(self.watch(kind, events.clone()));
        }
        drop(events);
        let mut usage = ClassUsage::default();
        let mut retries: BTreeMap<NamespacedName, Instant> = BTreeMap::new();
        loop {
            let next_try = retries.values().min().copied();
            tokio::select! {
                event = seen.recv() => match event {
                    Some((kind, event)) => usage.apply(kind, event),
                    None => return,
                },
                changed = self.replica.leading.changed() => if changed.is_err() { return },
                Some(()) = OptionFuture::from(next_try.map(sleep_until)) => {}
            }
            while let Ok((kind, event)) = seen.try_recv() {
                usage.apply(kind, event);
            }
            if usage.listed.len() < 2 {
                continue;
            }
            let now = Instant::now();
            retries.retain(|_, at| *at > now);
            for (name, finalizers) in usage.plan(&self.replica.controller_name) {
                if retries.contains_key(&name) || !*self.replica.leading.borrow_and_update() {
                    continue;
                }
                match self.write(&name, &usage, &finalizers).await {
                    Ok(stored) => usage.put(Kind::GatewayClass, stored),
                    Err(error) => {
                        if matches!(&error, kube::Error::Api(status) if status.code == 409) {
                            tracing::debug!(%name, "the class has changed; writing its finalizer \
                                later");
                        } else {
                            tracing::warn!(%name, %error, "cannot write the finalizer; retrying");
                        }
                        retries.insert(name, Instant::now() + PAUSE);
                    }
                }
            }
        }
    }

    fn watch(
        &self,
        kind: Kind,
        events: UnboundedSender<(Kind, WatchEvent<Found>)>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let apis = watched_apis(&self.replica, kind, API_VERSION);
        let watch = ObjectWatch::for_apis(&self.replica, kind.as_str(), apis, watch_config());
        let keep = |received: Received| found(&received);
        watch.run(PAUSE, keep, move |event: Result<_, _>| {
            event.map_or(true, |event| events.send((kind, event)).is_ok())
        })
    }

    /// Fails if the class has changed concurrently.
    async fn write(
        &self,
        name: &NamespacedName,
        usage: &ClassUsage,
        finalizers: &[String],
    ) -> kube::Result<Found> {
        let known = usage.known.get(&(Kind::GatewayClass, name.clone()));
        let version = known.map(|class| class.version.as_str());
        let resource = api_resource(Kind::GatewayClass, API_VERSION);
        let api: Api<Received> = Api::all_with(self.replica.client.clone(), &resource);
        let body = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let patch = Patch::Merge(&body);
        let metrics = &self.replica.metrics;
        metrics.published(Kind::GatewayClass.as_str(), "patch");
        let written = api.patch(&name.name, &parameters, &patch);
        answer(TIMEOUT, written).await.map(|stored| found(&stored))
    }
}

type Found = (NamespacedName, ClassOrGateway);

fn found(received: &Received) -> Found {
    let names = received.text("/spec/controllerName");
    let names = names.or_else(|| received.text("/spec/gatewayClassName"));
    let finalizers = received.value()["metadata"]["finalizers"].as_array();
    let finalizers = finalizers.into_iter().flatten().filter_map(Value::as_str);
    let kept = ClassOrGateway {
        version: received.version().to_owned(),
        names: names.unwrap_or_default(),
        finalizers: finalizers.map(str::to_owned).collect(),
        deleted: received.is_deleted(),
    };
    (received.name(), kept)
}

impl ClassUsage {
    fn apply(&mut self, kind: Kind, event: WatchEvent<Found>) {
        match event {
            WatchEvent::Listed(all) => {
                self.listed.insert(kind);
                self.known.retain(|(of, _), _| *of != kind);
                for found in all {
                    self.put(kind, found);
                }
            }
            WatchEvent::Applied(found) => self.put(kind, found),
            WatchEvent::Deleted((name, _)) => {
                self.known.remove(&(kind, name));
            }
        }
    }

    fn put(&mut self, kind: Kind, (name, new): Found) {
        let number = |object: &ClassOrGateway| object.version.parse::<u64>().unwrap_or(0);
        let key = (kind, name);
        let known = self.known.get(&key);
        // Keep the newer version: a response to a write may arrive before older watch events.
        if known.is_none_or(|known| number(known) <= number(&new)) {
            self.known.insert(key, new);
        }
    }

    /// The order of other finalizers is preserved.
    fn plan(&self, controller_name: &str) -> Vec<(NamespacedName, Vec<String>)> {
        let of = |kind| self.known.iter().filter(move |((of, _), _)| *of == kind);
        let used: BTreeSet<&String> = of(Kind::Gateway).map(|(_, g)| &g.names).collect();
        let ours = of(Kind::GatewayClass).filter(|(_, class)| class.names == controller_name);
        ours.filter_map(|((_, name), class)| {
            let has = class.finalizers.iter().any(|held| held == FINALIZER);
            let mut finalizers = class.finalizers.clone();
            match (used.contains(&name.name), has) {
                // The API server rejects a new finalizer on an object that is being deleted.
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
    fn own_class_is_held_while_gateway_uses_it() {
        let object = |names: &str, finalizers: &[&str], deleted| ClassOrGateway {
            version: "1".to_owned(),
            names: names.to_owned(),
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
            deleted,
        };
        let mut usage = ClassUsage::default();
        for (name, class) in [
            ("used", object("ours", &["other"], false)),
            ("held", object("ours", &[FINALIZER], true)),
            ("late", object("ours", &["other"], true)),
            ("free", object("ours", &[FINALIZER, "other"], false)),
            ("theirs", object("theirs", &[FINALIZER], false)),
        ] {
            usage.put(Kind::GatewayClass, (NamespacedName::new("", name), class));
        }
        for name in ["used", "held", "late"] {
            let gateway = NamespacedName::new("default", name);
            usage.put(Kind::Gateway, (gateway, object(name, &[], false)));
        }
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let wanted = [
            (NamespacedName::new("", "free"), texts(&["other"])),
            (
                NamespacedName::new("", "used"),
                texts(&["other", FINALIZER]),
            ),
        ];
        assert_eq!(usage.plan("ours"), wanted);
    }
}
