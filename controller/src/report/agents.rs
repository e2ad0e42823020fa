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

use super::hosts::{self, Revisions, STRANGE, Said};
use super::judged::Judged;
use super::kept::Heard;
use super::nodes::{self, Nodes};
use super::silence::{Moment, Silences};
use crate::serve::Metrics;
use crate::watch::{Kept, PAGE, Seen, follow, is_forbidden, watch_config};
use sesame_gateway_api::api::{NamespacedName, Network};
use sesame_gateway_api::world::{Kind, ObjectKey};
use sesame_published::GatewayAgent;
use sesame_published::names::agent_name;

/// How often the kind is looked for while it is not installed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How many Gateways one host may report about: as many as it may have addresses for.
const MAX_OF_HOST: usize = 256;

/// A GatewayAgent by name; none if it cannot be decoded.
type Found = (String, Option<GatewayAgent>);

/// What the watches tell.
pub(super) enum News {
    Agents(Box<Seen<Found>>),
    /// The kind is not installed, or may not be read.
    NoAgents,
    Nodes(Seen<nodes::Found>),
    /// They may not be read.
    NoNodes,
}

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
    /// Agents that no host may have written, with the reason. Nothing of them is told.
    refused: BTreeMap<String, &'static str>,
    of_host: BTreeMap<String, usize>,
    /// Whether it is known which agents there are.
    listed: bool,
    nodes: Nodes,
    metrics: Arc<Metrics>,
    /// The watches and the deletions under way.
    tasks: JoinSet<()>,
}

impl Agents {
    /// Starts to watch them; hosts of any name may serve at the `declared` addresses.
    pub(super) fn watch(
        client: &Client,
        namespace: &str,
        declared: Vec<Network>,
        metrics: &Arc<Metrics>,
    ) -> (Self, UnboundedReceiver<News>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let resource = ApiResource::erase::<GatewayAgent>(&());
        let api: Api<Kept<Heard>> = Api::namespaced_with(client.clone(), namespace, &resource);
        let mut tasks = JoinSet::new();
        tasks.spawn(watch(api, sender.clone(), Arc::clone(metrics)));
        tasks.spawn(nodes::watch(client.clone(), Arc::clone(metrics), sender));
        let agents = Self {
            api: Api::namespaced(client.clone(), namespace),
            by_gateway: BTreeMap::new(),
            gateways: BTreeMap::new(),
            revisions: BTreeMap::new(),
            said: BTreeMap::new(),
            silences: Silences::default(),
            stale: BTreeSet::new(),
            refused: BTreeMap::new(),
            of_host: BTreeMap::new(),
            listed: false,
            nodes: Nodes::new(declared),
            metrics: Arc::clone(metrics),
            tasks,
        };
        (agents, receiver)
    }

    /// Whether all that hosts say is known. Before, nothing should be said of Gateways: it would be taken back at once.
    pub(super) fn listed(&self) -> bool {
        self.listed && self.nodes.listed()
    }

    /// Takes what a watch saw; returns the objects about which something else is said now.
    pub(super) fn hear(&mut self, news: News, now: Moment) -> BTreeSet<ObjectKey> {
        let other = match news {
            News::Agents(seen) => return self.take(*seen, now),
            News::NoAgents => {
                self.listed = true;
                false
            }
            News::Nodes(seen) => self.nodes.take(seen),
            News::NoNodes => {
                self.nodes.none();
                false
            }
        };
        if other {
            self.listen(self.all(), now)
        } else {
            BTreeSet::new()
        }
    }

    /// What the hosts of each Gateway say.
    pub(super) fn said(&self) -> &BTreeMap<NamespacedName, Said> {
        &self.said
    }

    fn take(&mut self, seen: Seen<Found>, now: Moment) -> BTreeSet<ObjectKey> {
        let mut touched = BTreeSet::new();
        match seen {
            Seen::All(found) => {
                self.silences.hear(readable(&found), now);
                touched.extend(std::mem::take(&mut self.by_gateway).into_keys());
                self.gateways.clear();
                self.of_host.clear();
                self.listed = true;
                let there: BTreeSet<&String> = found.iter().map(|(name, _)| name).collect();
                self.refused.retain(|name, _| there.contains(name));
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
        let stale: BTreeSet<String> = stale
            .into_iter()
            .chain(self.refused.keys().cloned())
            .collect();
        for name in stale.intersection(&self.stale) {
            let (api, name) = (self.api.clone(), name.clone());
            let why = self.refused.get(&name).copied();
            let why = why.unwrap_or("it is of no Gateway of ours, or dead for a day");
            self.tasks.spawn(async move {
                tracing::info!(agent = name, "the GatewayAgent is removed: {why}");
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
            let agents = self.by_gateway.get_mut(&gateway);
            if let Some(before) = agents.and_then(|agents| agents.remove(&name))
                && let Some(count) = self.of_host.get_mut(&before.spec.host)
            {
                *count -= 1;
                if *count == 0 {
                    self.of_host.remove(&before.spec.host);
                }
            }
            touched.insert(gateway);
        }
        let refused = agent.as_ref().and_then(|agent| self.refusal(&name, agent));
        if let Some(why) = refused {
            if self.refused.insert(name.clone(), why).is_none() {
                tracing::warn!(agent = name, "a GatewayAgent counts for nothing: {why}");
            }
        } else {
            self.refused.remove(&name);
        }
        self.metrics.reports_refused(self.refused.len());
        if let Some(mut agent) = agent.filter(|_| refused.is_none()) {
            agent.metadata.managed_fields = None;
            let gateway = hosts::gateway_of(&agent);
            *self.of_host.entry(agent.spec.host.clone()).or_default() += 1;
            touched.insert(gateway.clone());
            self.gateways.insert(name.clone(), gateway.clone());
            let agents = self.by_gateway.entry(gateway).or_default();
            agents.insert(name, agent);
        }
    }

    /// Why nothing of the agent counts; none if it does.
    fn refusal(&self, name: &str, agent: &GatewayAgent) -> Option<&'static str> {
        let host = &agent.spec.host;
        if agent_name(&hosts::gateway_of(agent), host) != name {
            return Some("its name does not follow from its Gateway and its host");
        }
        let count = self.of_host.get(host).copied().unwrap_or(0);
        (count >= MAX_OF_HOST).then_some("its host reports about 256 other Gateways")
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
            let said = hosts::said(heard, revisions, |host, ip| self.nodes.allow(host, ip));
            let before = self.said.remove(&gateway).unwrap_or_default();
            if said.strange != before.strange && !said.strange.is_empty() {
                let addresses = said.strange.join(", ");
                tracing::warn!(%gateway, addresses, "addresses that hosts report are left out: {STRANGE}");
            }
            if said != before {
                touched.insert(ObjectKey {
                    kind: Kind::Gateway,
                    name: gateway.clone(),
                });
                let routes = before.refused.keys().chain(said.refused.keys());
                touched.extend(routes.filter_map(|route| ObjectKey::parse(route)));
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

async fn watch(api: Api<Kept<Heard>>, news: UnboundedSender<News>, metrics: Arc<Metrics>) {
    let kind = GatewayAgent::kind(&());
    let keep = |found: Kept<Heard>| (found.name().name, found.kept.0);
    let fail = |error: &watcher::Error| {
        metrics.watch_failed(&kind);
        tracing::warn!(%error, "the watch of GatewayAgents failed; it is started again");
        if is_forbidden(error) {
            let _ = news.send(News::NoAgents);
        }
    };
    let take = |seen| news.send(News::Agents(Box::new(seen))).is_ok();
    loop {
        let watch = watcher(api.clone(), watch_config().page_size(PAGE));
        if !follow(watch, keep, take, fail).await || news.send(News::NoAgents).is_err() {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
