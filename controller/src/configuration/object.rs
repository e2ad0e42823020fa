//! Watches the controller's own SesameConfiguration, and writes the conditions of all
//! SesameConfigurations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::OptionFuture;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::conditions::patch;
use super::settings::settings;
use super::{ConfigurationFollower, ConfigurationSource, CurrentSettings};
use crate::connection::answer;
use crate::watch::{
    ObjectWatch, Received, Unwatched, WatchEvent, api_resource, watch_config, watched_apis,
};
use sesame_kinds::api::{NamespacedName, SesameConfiguration};
use sesame_kinds::decode::decode_value;
use sesame_kinds::world::{AnyObject, Kind};
use sesame_resolver::settings::check;

const API_VERSION: &str = "projectsesame.io/v1alpha1";
const FIELD_MANAGER: &str = "sesame-controller";
const TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(5);

struct StoredConfiguration {
    version: String,
    value: Value,
    decoded: Result<Box<SesameConfiguration>, String>,
}

impl StoredConfiguration {
    fn of(received: Received) -> Self {
        let version = received.version().to_owned();
        let value = received.kept.value;
        let decoded = decode_value(value.clone(), Kind::SesameConfiguration, API_VERSION);
        let decoded = match decoded.map(|decoded| decoded.object) {
            Ok(AnyObject::SesameConfiguration(found)) => Ok(Box::new((*found).clone())),
            Ok(other) => Err(format!("found a {}", other.kind())),
            Err(error) => Err(error.reason.to_string()),
        };
        Self {
            version,
            value,
            decoded,
        }
    }

    fn faults(&self) -> Vec<String> {
        match &self.decoded {
            Ok(configuration) => check::faults(configuration),
            Err(why) => vec![why.clone()],
        }
    }
}

type Known = BTreeMap<NamespacedName, StoredConfiguration>;

pub(super) async fn follow(follower: &ConfigurationFollower) {
    let apis = watched_apis(&follower.replica, Kind::SesameConfiguration, API_VERSION);
    let kind = Kind::SesameConfiguration.as_str();
    let watch = ObjectWatch::for_apis(&follower.replica, kind, apis, watch_config());
    let (events, mut seen) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let keep = |received: Received| (received.name(), StoredConfiguration::of(received));
    tasks.spawn(watch.run(PAUSE, keep, move |event| events.send(event).is_ok()));
    let mut leading = follower.replica.leading.clone();
    let mut known = Known::new();
    let mut previous = None;
    let mut retries: BTreeMap<NamespacedName, Instant> = BTreeMap::new();
    loop {
        let next_try = retries.values().min().copied();
        tokio::select! {
            event = seen.recv() => match event {
                Some(Ok(event)) => {
                    apply(&mut known, event);
                    update_settings(follower, &known, &mut previous);
                }
                Some(Err(why)) => unwatched(follower, why),
                None => return,
            },
            changed = leading.changed() => if changed.is_err() { return },
            () = follower.current.closed() => return,
            Some(()) = OptionFuture::from(next_try.map(sleep_until)) => {}
        }
        let now = Instant::now();
        retries.retain(|_, at| *at > now);
        if *leading.borrow_and_update() {
            write_all(follower, &mut known, &mut retries).await;
        }
    }
}

fn apply(known: &mut Known, event: WatchEvent<(NamespacedName, StoredConfiguration)>) {
    match event {
        WatchEvent::Listed(all) => *known = all.into_iter().collect(),
        WatchEvent::Applied((name, found)) => {
            known.insert(name, found);
        }
        WatchEvent::Deleted((name, _)) => {
            known.remove(&name);
        }
    }
}

fn update_settings(
    follower: &ConfigurationFollower,
    known: &Known,
    previous: &mut Option<CurrentSettings>,
) {
    let ConfigurationSource::Object(name) = &follower.source else {
        return;
    };
    let outcome = match known.get(name).map(|stored| &stored.decoded) {
        Some(Ok(configuration)) => settings(
            &follower.flags,
            Some(configuration.as_ref()),
            follower.memory_mib,
        )
        .map_err(|why| format!("SesameConfiguration {name} is not valid: {why}")),
        Some(Err(why)) => Err(format!("SesameConfiguration {name} cannot be read: {why}")),
        None => Err(format!(
            "SesameConfiguration {name} does not exist; create it, or start without --configuration"
        )),
    };
    // Most events concern other objects, so report only changes.
    if previous.as_ref() != Some(&outcome) {
        *previous = Some(outcome.clone());
        follower.accept(outcome, &name.to_string());
    }
}

fn unwatched(follower: &ConfigurationFollower, why: Unwatched) {
    let ConfigurationSource::Object(name) = &follower.source else {
        return;
    };
    let why = match why {
        Unwatched::NotServed => {
            "its definition is not installed; apply the output of `sesame-controller crds`"
        }
        Unwatched::Forbidden => "the controller is not permitted to watch it",
    };
    let why = format!("SesameConfiguration {name} cannot be read: {why}");
    follower.accept(Err(why), &name.to_string());
}

async fn write_all(
    follower: &ConfigurationFollower,
    known: &mut Known,
    retries: &mut BTreeMap<NamespacedName, Instant>,
) {
    let now = Timestamp::now();
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let names: BTreeSet<NamespacedName> = known.keys().cloned().collect();
    for name in names {
        let Some(stored) = known.get(&name) else {
            continue;
        };
        if retries.contains_key(&name) {
            continue;
        }
        let is_own = follower.source == ConfigurationSource::Object(name.clone());
        let Some(status) = patch(&stored.value, &stored.faults(), is_own, now) else {
            continue;
        };
        let resource = api_resource(Kind::SesameConfiguration, API_VERSION);
        let client = follower.replica.client.clone();
        let api: Api<Received> = Api::namespaced_with(client, &name.namespace, &resource);
        let metrics = &follower.replica.metrics;
        metrics.status_written(Kind::SesameConfiguration.as_str());
        let body = json!({"metadata": {"resourceVersion": stored.version}, "status": status});
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let change = Patch::Merge(&body);
        let written = api.patch_status(&name.name, &parameters, &change);
        match answer(TIMEOUT, written).await {
            Ok(received) => {
                known.insert(name, StoredConfiguration::of(received));
            }
            // The object has changed; the watch delivers the newer version.
            Err(kube::Error::Api(refusal)) if matches!(refusal.code, 404 | 409) => {}
            Err(error) => {
                tracing::warn!(%name, %error, "cannot write the status of a SesameConfiguration; \
                    retrying");
                retries.insert(name, Instant::now() + PAUSE);
            }
        }
    }
}
