//! Writes statuses while this replica is the leader, at most one per object at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use futures::future::OptionFuture;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::agents::Agents;
use super::backlog::Backlog;
use super::compose::{Reports, compose};
use super::contested;
use super::events::CertificateWarnings;
use super::liveness::ClockReading;
use super::pace::{Pace, SummaryPace};
use super::presence::AllPresences;
use super::status_page::{self, ReplicaFacts};
use super::transitions::{ObjectTransitions, Transition, transitions};
use super::write::{self, WriteOutcome};
use crate::configuration::{ControllerSettings, CurrentSettings};
use crate::publish::{RolloutHosts, RolloutNotes};
use crate::replica::{Replica, replace};
use crate::serve::PageAsk;
use crate::statuses::{
    AddressesByGateway, GatewayProblems, HostsByGateway, ProvisionReport, StatusChange,
};
use crate::watch::Input;
use sesame_kinds::world::ObjectKey;

const WRITES_AT_ONCE: usize = 8;
const TICK: Duration = Duration::from_secs(5);

pub(crate) struct StatusReporter {
    pub(crate) replica: Replica,
    /// Only `host_addresses` and `host_lost` are used.
    pub(crate) host_rules: watch::Receiver<CurrentSettings>,
    pub(crate) changes: UnboundedReceiver<StatusChange>,
    pub(crate) failures: watch::Receiver<GatewayProblems>,
    pub(crate) provisioned: watch::Receiver<ProvisionReport>,
    pub(crate) service_addresses: watch::Receiver<AddressesByGateway>,
    pub(crate) hosts: watch::Sender<HostsByGateway>,
    pub(crate) inputs: Sender<Input>,
    pub(crate) warnings: watch::Sender<CertificateWarnings>,
    pub(crate) presences: watch::Sender<AllPresences>,
    pub(crate) transitions: mpsc::Sender<ObjectTransitions>,
    pub(crate) asked: mpsc::Receiver<PageAsk>,
    pub(crate) rollout_notes: watch::Receiver<RolloutNotes>,
    pub(crate) rollout_hosts: watch::Sender<RolloutHosts>,
}

impl StatusReporter {
    pub(crate) async fn run(mut self) {
        let mut backlog = Backlog::default();
        let mut writes: JoinSet<(ObjectKey, WriteOutcome)> = JoinSet::new();
        let (mut agents, mut heard) = Agents::watch(&self.replica);
        self.apply_rules(&mut agents);
        let mut ticks = tokio::time::interval(TICK);
        let mut pace = SummaryPace::default();
        loop {
            let summing = pace.next().filter(|_| agents.wants_sum(true));
            let wait = self.start_writes(&mut backlog, &agents, &mut writes);
            tokio::select! {
                change = self.changes.recv() => match change {
                    Some(change) => backlog.apply(change, &mut agents),
                    None => return,
                },
                Some(event) = heard.recv() => agents.apply(event, ClockReading::now()),
                Some(()) = OptionFuture::from(summing.map(sleep_until)) => {}
                changed = self.host_rules.changed() => match changed {
                    Ok(()) => backlog.touch(self.apply_rules(&mut agents)),
                    Err(_) => return,
                },
                changed = self.failures.changed() => match changed {
                    Ok(()) => backlog.open_gateways(),
                    Err(_) => return,
                },
                Ok(()) = self.provisioned.changed() => backlog.open_gateways(),
                Ok(()) = self.service_addresses.changed() => backlog.open_gateways(),
                Ok(()) = self.rollout_notes.changed() => backlog.open_gateways(),
                changed = self.replica.leading.changed() => match changed {
                    Ok(()) => backlog.open.extend(backlog.stored.keys().cloned()),
                    Err(_) => return,
                },
                Some(Ok((key, outcome))) = writes.join_next() => {
                    self.record_transitions(&key, &outcome);
                    backlog.wrote(key, outcome);
                }
                _ = ticks.tick() => self.tick(&mut backlog, &mut agents),
                Some(ask) = self.asked.recv() => self.show(ask, &backlog, &agents),
                Some(()) = OptionFuture::from(wait.map(sleep_until)) => {}
            }
            // Apply all changes that have arrived before comparing statuses.
            while let Ok(change) = self.changes.try_recv() {
                backlog.apply(change, &mut agents);
            }
            // A warning or lapsed trust may be outdated now, so do not wait for the next tick.
            if std::mem::take(&mut backlog.is_unwarned) {
                backlog.open_warned(write::now());
            }
            while let Ok(event) = heard.try_recv() {
                agents.apply(event, ClockReading::now());
            }
            sum_up(&mut agents, &mut pace, &mut backlog);
            self.pass_on_hosts(&agents);
            self.report_ingresses(&mut backlog, &agents);
            if let Some(hosts) = agents.take_endpoints() {
                replace(&self.hosts, hosts);
            }
            if let Some(hosts) = agents.take_live_hosts()
                && self.inputs.send(Input::LiveHosts(hosts)).is_err()
            {
                return;
            }
        }
    }

    fn tick(&self, backlog: &mut Backlog, agents: &mut Agents) {
        let gateways = agents.check_liveness(ClockReading::now());
        backlog.touch(gateways);
        backlog.open_warned(write::now());
        replace(&self.warnings, backlog.warnings.clone());
        if agents.listed() {
            replace(&self.presences, agents.presences.clone());
        }
        backlog.forget_ended(Instant::now());
        if *self.replica.leading.borrow()
            && let Some(resolved) = &backlog.resolved
        {
            agents.forget_stale(resolved, ClockReading::now());
        }
    }

    fn record_transitions(&self, key: &ObjectKey, outcome: &WriteOutcome) {
        let WriteOutcome::Stored { before, stored, .. } = outcome else {
            return;
        };
        let name = &self.replica.controller_name;
        let all = transitions(&before.status(), &stored.status(), name);
        if all.is_empty() {
            return;
        }
        let object_transitions = ObjectTransitions {
            key: key.clone(),
            api_version: stored.api_version.to_string(),
            all,
        };
        self.pass_on(object_transitions);
    }

    /// Passes on only the hosts of Gateways with stages.
    fn pass_on_hosts(&self, agents: &Agents) {
        let notes = self.rollout_notes.borrow();
        if agents.knows_reports() && !notes.is_empty() {
            let hosts = agents.rollout_hosts(notes.keys(), ClockReading::now());
            replace(&self.rollout_hosts, Some(Arc::new(hosts)));
        }
    }

    fn report_ingresses(&self, backlog: &mut Backlog, agents: &Agents) {
        if *self.replica.leading.borrow() {
            for turned in backlog.take_turned(agents.fleets()) {
                self.pass_on(turned);
            }
        }
    }

    fn pass_on(&self, turned: ObjectTransitions) {
        let object = turned.key.clone();
        // Drop Events in a burst, because the statuses still contain the conditions.
        if self.transitions.try_send(turned).is_err() {
            tracing::debug!(%object, "too many conditions have changed; not writing an Event");
        }
    }

    fn show(&self, ask: PageAsk, backlog: &Backlog, agents: &Agents) {
        let PageAsk { unready, answer } = ask;
        let failures = self.failures.borrow().clone();
        let provisioned = self.provisioned.borrow().clone();
        let service_addresses = self.service_addresses.borrow().clone();
        let rollouts = self.rollout_notes.borrow().clone();
        let page = status_page::page(&ReplicaFacts {
            identity: &self.replica.identity,
            leads: *self.replica.leading.borrow(),
            api_server_answers: self.replica.metrics.does_api_server_answer(),
            unready: unready.as_deref(),
            resolved: backlog.resolved.as_deref(),
            reports: Reports {
                fleets: agents.fleets(),
                failures: &failures,
                provisioned: &provisioned,
                service_addresses: service_addresses.as_ref(),
                rollouts: &rollouts,
            },
            agents,
            now: ClockReading::now(),
        });
        let _ = answer.send(page);
    }

    /// Returns the objects whose summary changed.
    fn apply_rules(&mut self, agents: &mut Agents) -> BTreeSet<ObjectKey> {
        match &*self.host_rules.borrow_and_update() {
            Ok(ControllerSettings {
                host_addresses,
                host_lost,
                ..
            }) => agents.apply_rules(host_addresses, *host_lost, ClockReading::now()),
            Err(_) => BTreeSet::new(),
        }
    }

    /// Returns when the next write is allowed.
    fn start_writes(
        &self,
        backlog: &mut Backlog,
        agents: &Agents,
        writes: &mut JoinSet<(ObjectKey, WriteOutcome)>,
    ) -> Option<Instant> {
        let resolved = backlog.resolved.clone()?;
        if !*self.replica.leading.borrow() || !agents.listed() {
            return None;
        }
        let failures = self.failures.borrow().clone();
        let provisioned = self.provisioned.borrow().clone();
        let service_addresses = self.service_addresses.borrow().clone();
        let rollouts = self.rollout_notes.borrow().clone();
        let reports = Reports {
            fleets: agents.fleets(),
            failures: &failures,
            provisioned: &provisioned,
            service_addresses: service_addresses.as_ref(),
            rollouts: &rollouts,
        };
        let (now, time) = (Instant::now(), write::now());
        let mut next: Option<Instant> = None;
        let (mut settled, mut postponed) = (Vec::new(), Vec::new());
        for key in &backlog.open {
            if writes.len() >= WRITES_AT_ONCE {
                break;
            }
            if backlog.writing.contains(key) {
                continue;
            }
            if let Some(allowed) = backlog.allowed(key).filter(|allowed| *allowed > now) {
                next = Some(next.map_or(allowed, |next| next.min(allowed)));
                continue;
            }
            let Some(stored) = backlog.stored.get(key) else {
                settled.push(key.clone());
                continue;
            };
            if reports.leave_open(key, &resolved) {
                continue;
            }
            let status = compose(key, &resolved, &reports, time);
            let name = &self.replica.controller_name;
            let change = backlog.change((key, stored), status.as_ref(), name, time);
            let Some(change) = change else {
                settled.push(key.clone());
                continue;
            };
            let other = status.and(stored.other_writer.as_deref());
            if let Some(pause) = contested::pause(other, time) {
                postponed.push((key.clone(), pause));
                continue;
            }
            self.replica.metrics.status_written(key.kind.as_str());
            backlog.writing.insert(key.clone());
            let pace = backlog.paces.entry(key.clone());
            pace.and_modify(|pace| pace.wrote(now))
                .or_insert_with(|| Pace::new(now));
            let connection = (self.replica.client.clone(), self.replica.field_manager());
            writes.spawn(write::write(
                connection,
                key.clone(),
                stored.clone(),
                change,
            ));
        }
        for key in settled {
            backlog.open.remove(&key);
        }
        let due = self.postpone(backlog, postponed, now);
        next.into_iter().chain(due).min()
    }

    /// Returns when the first of these statuses is due.
    fn postpone(
        &self,
        backlog: &mut Backlog,
        postponed: Vec<(ObjectKey, Duration)>,
        now: Instant,
    ) -> Option<Instant> {
        let due = postponed.iter().map(|(_, pause)| now + *pause).min();
        for (key, pause) in postponed {
            if let Some(contested) = backlog.postpone(key, pause, now) {
                for Transition { message, .. } in &contested.all {
                    tracing::warn!(object = %contested.key, "{message}");
                }
                self.pass_on(contested);
            }
        }
        due
    }
}

fn sum_up(agents: &mut Agents, pace: &mut SummaryPace, backlog: &mut Backlog) {
    let start = Instant::now();
    if agents.wants_sum(pace.allows(start)) {
        let gateways = agents.sum_up(ClockReading::now());
        backlog.touch(gateways);
        pace.summed(start, Instant::now());
    }
}
