//! Groups all agents' reports by Gateway, and decides which reports to accept.

mod hosts;
mod rollouts;
mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;

use super::agent_objects::{self, NamedReport, readable};
use super::changes;
use super::fleet::{self, FleetSummary};
use super::liveness::{AgentLiveness, ClockReading};
use super::nodes::{self, Nodes};
use super::presence::{self, AllPresences};
use super::report_refusal::{MAX_PER_HOST, ReportRefusal};
use super::revisions::Revisions;
use crate::replica::Replica;
use crate::serve::Metrics;
use crate::statuses::{Members, ResolvedStatuses};
use crate::watch::{Unwatched, WatchEvent};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_proto::network::Network;
use sesame_published::GatewayAgent;
use sesame_published::names::agent_name;

pub(super) enum FleetEvent {
    Agents(Result<Box<WatchEvent<NamedReport>>, Unwatched>),
    Nodes(Result<WatchEvent<nodes::NamedNode>, Unwatched>),
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each flag is reset by another caller"
)]
pub(super) struct Agents {
    api: Api<GatewayAgent>,
    by_gateway: BTreeMap<NamespacedName, BTreeMap<String, GatewayAgent>>,
    gateways: BTreeMap<String, NamespacedName>,
    members: Members,
    revisions: BTreeMap<NamespacedName, Revisions>,
    fleets: BTreeMap<NamespacedName, FleetSummary>,
    liveness: AgentLiveness,
    lost_after: Duration,
    /// Includes hosts that have returned.
    pub(super) presences: AllPresences,
    /// Reports that were stale in the last check.
    stale: BTreeSet<String>,
    refused: BTreeMap<String, ReportRefusal>,
    reports_by_host: BTreeMap<String, usize>,
    listed: bool,
    /// True if the reports were read, or their kind is not served.
    reports_known: bool,
    unsummed: BTreeSet<NamespacedName>,
    /// True if statuses are waiting for the summary.
    sum_at_once: bool,
    /// Reset by `take_endpoints`.
    endpoints_changed: bool,
    /// Reset by `take_live_hosts`.
    live_changed: bool,
    nodes: Nodes,
    metrics: Arc<Metrics>,
    tasks: JoinSet<()>,
}

impl Agents {
    /// No host counts as lost until [`Self::apply_rules`] is called.
    pub(super) fn watch(replica: &Replica) -> (Self, UnboundedReceiver<FleetEvent>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(agent_objects::watch(replica.clone(), sender.clone()));
        tasks.spawn(nodes::watch(replica.clone(), sender));
        let agents = Self {
            api: Api::namespaced(replica.client.clone(), &replica.namespace),
            by_gateway: BTreeMap::new(),
            gateways: BTreeMap::new(),
            members: Members::default(),
            revisions: BTreeMap::new(),
            fleets: BTreeMap::new(),
            liveness: AgentLiveness::default(),
            presences: AllPresences::new(),
            lost_after: Duration::MAX,
            stale: BTreeSet::new(),
            refused: BTreeMap::new(),
            reports_by_host: BTreeMap::new(),
            listed: false,
            reports_known: false,
            unsummed: BTreeSet::new(),
            sum_at_once: false,
            endpoints_changed: true,
            live_changed: true,
            nodes: Nodes::default(),
            metrics: Arc::clone(&replica.metrics),
            tasks,
        };
        (agents, receiver)
    }

    /// Any host may serve at the `declared` addresses. Returns the objects whose summary changed.
    pub(super) fn apply_rules(
        &mut self,
        declared: &[Network],
        lost_after: Duration,
        now: ClockReading,
    ) -> BTreeSet<ObjectKey> {
        self.nodes.declare(declared);
        self.lost_after = lost_after;
        self.summarize(self.all(), now)
    }

    /// Returns true once all reports and Nodes are known. Until then, statuses could be wrong.
    pub(super) fn listed(&self) -> bool {
        self.listed && self.nodes.listed()
    }

    /// Returns true once all reports are known. Rollouts do not need Nodes, and must not mistake a
    /// refused request for a Gateway without hosts.
    pub(super) fn knows_reports(&self) -> bool {
        self.reports_known
    }

    /// Events arrive in bursts, so [`Self::sum_up`] summarizes them later.
    pub(super) fn apply(&mut self, event: FleetEvent, now: ClockReading) {
        match event {
            FleetEvent::Agents(Ok(event)) => {
                self.sum_at_once |= matches!(*event, WatchEvent::Listed(_));
                let touched = self.apply_reports(*event, now);
                self.unsummed.extend(touched);
            }
            // The kind is not installed, or reading it is forbidden.
            FleetEvent::Agents(Err(why)) => {
                self.listed = true;
                self.reports_known |= matches!(why, Unwatched::NotServed);
            }
            FleetEvent::Nodes(Ok(event)) => {
                if self.nodes.apply(event) {
                    self.sum_at_once = true;
                    self.unsummed.extend(self.by_gateway.keys().cloned());
                }
            }
            // An older ClusterRole does not permit this watch.
            FleetEvent::Nodes(Err(Unwatched::Forbidden)) => self.nodes.none(),
            FleetEvent::Nodes(Err(_)) => {}
        }
    }

    /// `may` is true if the pace allows a summary now.
    pub(super) fn wants_sum(&self, may: bool) -> bool {
        !self.unsummed.is_empty() && (may || self.sum_at_once)
    }

    /// Returns the objects whose summary changed.
    pub(super) fn sum_up(&mut self, now: ClockReading) -> BTreeSet<ObjectKey> {
        self.sum_at_once = false;
        let names = std::mem::take(&mut self.unsummed);
        self.summarize(names, now)
    }

    pub(super) fn fleets(&self) -> &BTreeMap<NamespacedName, FleetSummary> {
        &self.fleets
    }

    /// Returns the Gateways with changes other than heartbeats.
    fn apply_reports(
        &mut self,
        event: WatchEvent<NamedReport>,
        now: ClockReading,
    ) -> BTreeSet<NamespacedName> {
        let mut touched = BTreeSet::new();
        match event {
            WatchEvent::Listed(found) => {
                self.liveness.hear(readable(&found), now);
                touched.extend(std::mem::take(&mut self.by_gateway).into_keys());
                self.gateways.clear();
                self.reports_by_host.clear();
                self.listed = true;
                self.reports_known = true;
                let there: BTreeSet<&String> = found.iter().map(|(name, _)| name).collect();
                self.refused.retain(|name, _| there.contains(name));
                for (name, agent) in found {
                    self.put(name, agent, &mut touched);
                }
                self.liveness
                    .retain(|name| self.gateways.contains_key(name));
            }
            WatchEvent::Applied((name, agent)) => {
                let was_silent = self.liveness.silence(&name, now) > self.lost_after;
                let gateway = self.gateways.get(&name);
                let before = gateway.and_then(|gateway| self.by_gateway.get(gateway)?.get(&name));
                let is_same = |(before, now)| fleet::is_same_report(before, now);
                let is_news = was_silent || !before.zip(agent.as_ref()).is_some_and(is_same);
                let found = [(name, agent)];
                self.liveness.hear(readable(&found), now);
                let [(name, agent)] = found;
                if is_news {
                    self.put(name, agent, &mut touched);
                }
            }
            WatchEvent::Deleted((gone, _)) => {
                self.liveness.retain(|name| name != gone);
                self.put(gone, None, &mut touched);
            }
        }
        touched
    }

    /// Returns the objects whose summary changed.
    pub(super) fn record_revisions(
        &mut self,
        resolved: &ResolvedStatuses,
        now: ClockReading,
    ) -> BTreeSet<ObjectKey> {
        let mut touched = BTreeSet::new();
        let members = resolved.members();
        if members != self.members {
            self.members = members;
            self.endpoints_changed = true;
            self.live_changed = true;
            let names = self.by_gateway.keys();
            let known: BTreeSet<_> = names.flat_map(|it| self.members.gateways_of(it)).collect();
            self.presences.retain(|gateway, _| known.contains(gateway));
            let all = self.fleets.keys().cloned();
            touched.extend(all.map(|gateway| Kind::Gateway.named(gateway)));
            self.fleets.retain(|gateway, _| known.contains(gateway));
        }
        self.revisions
            .retain(|gateway, _| resolved.statuses.gateways.contains_key(gateway));
        let sets = resolved.listener_sets();
        for (name, revision) in &resolved.revisions {
            for gateway in self.members.gateways_of(name) {
                let generation = resolved.generation(&gateway);
                let sets = sets.get(&gateway).into_iter().flatten().copied();
                let revisions = self.revisions.entry(gateway).or_default();
                revisions.record(generation, revision, sets);
            }
        }
        touched.extend(self.summarize(self.all(), now));
        touched
    }

    /// Returns the objects whose summary changed.
    pub(super) fn check_liveness(&mut self, now: ClockReading) -> BTreeSet<ObjectKey> {
        self.summarize(self.all(), now)
    }

    fn follow_presences(
        &mut self,
        name: &NamespacedName,
        gateway: &NamespacedName,
        lost: &[String],
    ) {
        let none = BTreeMap::new();
        let agents = self.by_gateway.get(name).unwrap_or(&none);
        let before = self.presences.remove(gateway).unwrap_or_default();
        let reporting: BTreeSet<&str> = if before.is_empty() {
            BTreeSet::new()
        } else {
            agents
                .values()
                .map(|agent| agent.spec.host.as_str())
                .collect()
        };
        let reports = |host: &str| reporting.contains(host);
        let now = presence::follow(&before, lost, reports);
        if !now.is_empty() {
            self.presences.insert(gateway.clone(), now);
        }
    }

    /// Deletes reports that were stale in two consecutive checks.
    pub(super) fn forget_stale(&mut self, resolved: &ResolvedStatuses, now: ClockReading) {
        while self.tasks.try_join_next().is_some() {}
        let is_ours = |name: &NamespacedName| resolved.publishes(name);
        let agents = self.by_gateway.values().flatten();
        let silence = |name: &str| self.liveness.silence(name, now);
        let mut stale = fleet::stale(agents, is_ours, silence, self.lost_after);
        stale.extend(self.refused.keys().cloned());
        for name in stale.intersection(&self.stale) {
            let stale = "its Gateway is not served here, its host has not reported for a day, or its Pod no longer exists";
            let refused = self.refused.get(name);
            let why = refused.map_or_else(|| stale.to_owned(), ToString::to_string);
            let (api, name) = (self.api.clone(), name.clone());
            self.tasks.spawn(agent_objects::remove(api, name, why));
        }
        self.stale = stale;
    }

    fn put(
        &mut self,
        name: String,
        agent: Option<GatewayAgent>,
        touched: &mut BTreeSet<NamespacedName>,
    ) {
        if let Some(gateway) = self.gateways.remove(&name) {
            let agents = self.by_gateway.get_mut(&gateway);
            if let Some(before) = agents.and_then(|agents| agents.remove(&name))
                && let Some(count) = self.reports_by_host.get_mut(&before.spec.host)
            {
                *count -= 1;
                if *count == 0 {
                    self.reports_by_host.remove(&before.spec.host);
                }
            }
            touched.insert(gateway);
        }
        let refused = agent.as_ref().and_then(|agent| self.refusal(&name, agent));
        if let Some(why) = refused {
            if self.refused.insert(name.clone(), why).is_none() {
                tracing::warn!(agent = name, "ignoring a GatewayAgent: {why}");
            }
        } else {
            self.refused.remove(&name);
        }
        self.metrics.reports_refused(self.refused.len());
        if let Some(mut agent) = agent.filter(|_| refused.is_none()) {
            agent.metadata.managed_fields = None;
            let gateway = fleet::gateway_of(&agent);
            *self
                .reports_by_host
                .entry(agent.spec.host.clone())
                .or_default() += 1;
            touched.insert(gateway.clone());
            self.gateways.insert(name.clone(), gateway.clone());
            let agents = self.by_gateway.entry(gateway).or_default();
            agents.insert(name, agent);
        }
    }

    /// Returns `None` if the report is accepted.
    fn refusal(&self, name: &str, agent: &GatewayAgent) -> Option<ReportRefusal> {
        let host = &agent.spec.host;
        if agent_name(&fleet::gateway_of(agent), host) != name {
            return Some(ReportRefusal::Name);
        }
        let count = self.reports_by_host.get(host).copied().unwrap_or(0);
        (count >= MAX_PER_HOST).then_some(ReportRefusal::TooMany)
    }

    fn all(&self) -> BTreeSet<NamespacedName> {
        self.by_gateway.keys().cloned().collect()
    }

    /// Returns the objects whose summary changed.
    fn summarize(
        &mut self,
        names: BTreeSet<NamespacedName>,
        now: ClockReading,
    ) -> BTreeSet<ObjectKey> {
        let mut touched = BTreeSet::new();
        for name in names {
            for gateway in self.members.gateways_of(&name) {
                self.summarize_one(&name, gateway, now, &mut touched);
            }
            if self.by_gateway.get(&name).is_some_and(BTreeMap::is_empty) {
                self.by_gateway.remove(&name);
            }
        }
        let lost = self.fleets.values().flat_map(|fleet| &fleet.lost);
        let lost: BTreeSet<&String> = lost.collect();
        self.metrics.hosts_lost(lost.len());
        touched
    }

    fn summarize_one(
        &mut self,
        name: &NamespacedName,
        gateway: NamespacedName,
        now: ClockReading,
        touched: &mut BTreeSet<ObjectKey>,
    ) {
        let none = Revisions::default();
        let revisions = self.revisions.get(&gateway).unwrap_or(&none);
        let agents = self.by_gateway.get(name);
        let agents = agents.into_iter().flatten();
        let reports = agents.map(|(name, agent)| (agent, self.liveness.silence(name, now)));
        let summary = fleet::summarize(reports, revisions, self.lost_after, |host, ip| {
            self.nodes.allow(host, ip)
        });
        let before = self.fleets.remove(&gateway).unwrap_or_default();
        changes::log(&gateway, &before, &summary);
        self.follow_presences(name, &gateway, &summary.lost);
        self.endpoints_changed |= summary.endpoints != before.endpoints;
        self.live_changed |= summary.live != before.live;
        if summary != before {
            touched.insert(Kind::Gateway.named(gateway.clone()));
            let routes = before.refused.keys().chain(summary.refused.keys());
            touched.extend(routes.filter_map(|route| ObjectKey::parse(route)));
        }
        if summary.programmed.hosts > 0 {
            self.fleets.insert(gateway, summary);
        }
    }
}
