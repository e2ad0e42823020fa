//! What the agents report, by Gateway, as it is told in statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::DeleteParams;
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use super::hosts::{self, Revisions, Said};
use super::judged::Judged;
use super::silence::{Moment, Silences};
use crate::api::NamespacedName;
use crate::api::decode::from_value;
use crate::cluster::GatewayAgent;
use crate::serve::Metrics;
use crate::watch::{Incoming, Seen, follow, watch_config};
use crate::world::{Kind, ObjectKey};

/// How often the kind is looked for while it is not installed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A GatewayAgent by name; none if it cannot be decoded.
type Found = (String, Option<GatewayAgent>);

/// All agents, and what they say.
pub(super) struct Agents {
    api: Api<GatewayAgent>,
    by_gateway: BTreeMap<NamespacedName, BTreeMap<String, GatewayAgent>>,
    /// The Gateway under which an agent is found.
    gateways: BTreeMap<String, NamespacedName>,
    revisions: BTreeMap<NamespacedName, Revisions>,
    said: BTreeMap<NamespacedName, Said>,
    silences: Silences,
    /// Agents that were stale at the last look: one look may be too early.
    stale: BTreeSet<String>,
    /// The watch and the deletions under way.
    tasks: JoinSet<()>,
}

impl Agents {
    /// Starts to watch them.
    pub(super) fn watch(
        client: &Client,
        namespace: &str,
        metrics: &Arc<Metrics>,
    ) -> (Self, UnboundedReceiver<Seen<Found>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let resource = ApiResource::erase::<GatewayAgent>(&());
        let api: Api<Incoming> = Api::namespaced_with(client.clone(), namespace, &resource);
        let mut tasks = JoinSet::new();
        tasks.spawn(watch(api, sender, Arc::clone(metrics)));
        let agents = Self {
            api: Api::namespaced(client.clone(), namespace),
            by_gateway: BTreeMap::new(),
            gateways: BTreeMap::new(),
            revisions: BTreeMap::new(),
            said: BTreeMap::new(),
            silences: Silences::default(),
            stale: BTreeSet::new(),
            tasks,
        };
        (agents, receiver)
    }

    /// What the hosts of each Gateway say.
    pub(super) fn said(&self) -> &BTreeMap<NamespacedName, Said> {
        &self.said
    }

    /// Takes what the watch saw; returns the objects about which something else is said now.
    pub(super) fn take(&mut self, seen: Seen<Found>, now: Moment) -> BTreeSet<ObjectKey> {
        let mut touched = BTreeSet::new();
        match seen {
            Seen::All(found) => {
                self.silences.hear(readable(&found), now);
                touched.extend(std::mem::take(&mut self.by_gateway).into_keys());
                self.gateways.clear();
                for (name, agent) in found {
                    self.put(name, agent, &mut touched);
                }
                self.silences
                    .retain(|name| self.gateways.contains_key(name));
            }
            Seen::One((name, agent)) => {
                let found = [(name, agent)];
                self.silences.hear(readable(&found), now);
                let [(name, agent)] = found;
                self.put(name, agent, &mut touched);
            }
            Seen::Gone((gone, _)) => {
                self.silences.retain(|name| name != gone);
                self.put(gone, None, &mut touched);
            }
        }
        self.listen(touched, now)
    }

    /// Takes note of what is to be published now; returns the objects about which something else is said now.
    pub(super) fn note_revisions(&mut self, judged: &Judged, now: Moment) -> BTreeSet<ObjectKey> {
        self.revisions
            .retain(|gateway, _| judged.statuses.gateways.contains_key(gateway));
        for (gateway, revision) in &judged.revisions {
            let status = judged.statuses.gateways.get(gateway);
            let generation = status
                .and_then(|status| status.conditions.first())
                .map_or(0, |condition| condition.observed_generation);
            let revisions = self.revisions.entry(gateway.clone()).or_default();
            revisions.note(generation, revision);
        }
        self.listen(self.all(), now)
    }

    /// Hosts may be lost by now; returns the objects about which something else is said.
    pub(super) fn look_at_the_clock(&mut self, now: Moment) -> BTreeSet<ObjectKey> {
        self.listen(self.all(), now)
    }

    /// Deletes agents that were stale at two looks.
    pub(super) fn forget_stale(&mut self, judged: &Judged, now: Moment) {
        while self.tasks.try_join_next().is_some() {}
        let is_ours = |gateway: &NamespacedName| judged.statuses.gateways.contains_key(gateway);
        let agents = self.by_gateway.values().flatten();
        let stale = hosts::stale(agents, is_ours, |name| self.silences.of(name, now));
        for name in stale.intersection(&self.stale) {
            let (api, name) = (self.api.clone(), name.clone());
            self.tasks.spawn(async move {
                tracing::info!(
                    agent = name,
                    "the GatewayAgent is of no Gateway of ours, or dead for a day; it is removed"
                );
                match api.delete(&name, &DeleteParams::default()).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => tracing::warn!(agent = name, %error, "it cannot be removed"),
                }
            });
        }
        self.stale = stale;
    }

    /// Puts the agent, or nothing, in the place of what had its name.
    fn put(
        &mut self,
        name: String,
        agent: Option<GatewayAgent>,
        touched: &mut BTreeSet<NamespacedName>,
    ) {
        if let Some(gateway) = self.gateways.remove(&name) {
            if let Some(agents) = self.by_gateway.get_mut(&gateway) {
                agents.remove(&name);
            }
            touched.insert(gateway);
        }
        if let Some(mut agent) = agent {
            // They are longer than the rest.
            agent.metadata.managed_fields = None;
            let gateway = hosts::gateway_of(&agent);
            touched.insert(gateway.clone());
            self.gateways.insert(name.clone(), gateway.clone());
            let agents = self.by_gateway.entry(gateway).or_default();
            agents.insert(name, agent);
        }
    }

    fn all(&self) -> BTreeSet<NamespacedName> {
        self.by_gateway.keys().cloned().collect()
    }

    /// Hears the agents of these Gateways again.
    fn listen(&mut self, gateways: BTreeSet<NamespacedName>, now: Moment) -> BTreeSet<ObjectKey> {
        let mut touched = BTreeSet::new();
        for gateway in gateways {
            let none = Revisions::default();
            let revisions = self.revisions.get(&gateway).unwrap_or(&none);
            let agents = self.by_gateway.get(&gateway);
            let agents = agents.into_iter().flatten();
            let heard = agents.map(|(name, agent)| (agent, self.silences.of(name, now)));
            let said = hosts::said(heard, revisions);
            let before = self.said.remove(&gateway).unwrap_or_default();
            if said != before {
                touched.insert(ObjectKey {
                    kind: Kind::Gateway,
                    name: gateway.clone(),
                });
                let routes = before.refused.keys().chain(said.refused.keys());
                touched.extend(routes.filter_map(|route| route_key(route)));
            }
            if said.programmed.hosts > 0 {
                self.said.insert(gateway, said);
            } else {
                self.by_gateway.remove(&gateway);
            }
        }
        touched
    }
}

/// Those that can be decoded.
fn readable(found: &[Found]) -> impl Iterator<Item = (&str, &GatewayAgent)> + Clone {
    let agents = found.iter();
    agents.filter_map(|found| Some((found.0.as_str(), found.1.as_ref()?)))
}

/// `HTTPRoute/namespace/name`; none if it is not the name of a route.
fn route_key(text: &str) -> Option<ObjectKey> {
    let mut parts = text.splitn(3, '/');
    let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    let kind = Kind::ALL.iter().find(|known| known.as_str() == kind)?;
    Some(ObjectKey {
        kind: *kind,
        name: NamespacedName::new(namespace, name),
    })
}

async fn watch(api: Api<Incoming>, sender: UnboundedSender<Seen<Found>>, metrics: Arc<Metrics>) {
    let kind = GatewayAgent::kind(&());
    let keep = |incoming: Incoming| {
        let name = incoming.name().name;
        let mut agent = from_value::<GatewayAgent>(incoming.value);
        if let Ok(agent) = &mut agent {
            let managed = incoming.managed.map(serde_json::from_value);
            agent.metadata.managed_fields = managed.and_then(Result::ok);
        }
        if let Err(error) = &agent {
            tracing::warn!(agent = name, %error, "a GatewayAgent cannot be read and is skipped");
        }
        (name, agent.ok())
    };
    let fail = |error: &watcher::Error| {
        metrics.watch_failed(&kind);
        tracing::warn!(%error, "the watch of GatewayAgents failed; it is started again");
    };
    loop {
        let watch = watcher(api.clone(), watch_config());
        if !follow(watch, keep, |seen| sender.send(seen).is_ok(), fail).await {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
