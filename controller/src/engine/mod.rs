//! The engine: events of the watches in, publications and statuses out. One thread; all of its work is CPU-bound.
//!
//! It resolves the world after a short quiet, and only a whole world: until every kind was listed once and
//! every object referred to was read, there is nothing to publish, so that nothing is withdrawn because some object is
//! not known yet. Endpoints change nothing but endpoint shards, so those are made anew without a resolution;
//! a few changed routes are resolved with their neighbours alone. Both have the outcome of a whole resolution. The engine
//! never waits for a write.

mod bundles;
mod cluster_state;
mod pending;
#[cfg(test)]
mod refresh_tests;
mod relevant;
#[cfg(test)]
mod reroute_tests;
mod single;
mod slices;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use self::bundles::{Bundles, Refresh};
use self::cluster_state::{ClusterState, Effect};
use self::pending::{Pending, Task};
use crate::publish::{DesiredPublications, revisions};
use crate::serve::Metrics;
use crate::statuses::{Resolved, ResolvedStatuses, RouteStatusUpdate, StatusChange};
use crate::watch::{Input, References, references};
use sesame_gateway_api::expiry::Expiry;
use sesame_gateway_api::resolve::reroute::{Before, OtherStatus, Rerouted, reroute};
use sesame_gateway_api::resolve::{Options, Resolver};
use sesame_gateway_api::world::ObjectKey;

/// Choice of the Gateways that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All Gateways of all classes of ours.
    Multiple,
    /// The oldest Gateway of the oldest class.
    Single,
}

/// Everything the engine's thread owns.
pub(crate) struct Engine {
    pub(crate) inputs: Receiver<Input>,
    pub(crate) options: Options,
    pub(crate) mode: Mode,
    pub(crate) references: watch::Sender<References>,
    pub(crate) desired: watch::Sender<Option<Arc<DesiredPublications>>>,
    pub(crate) statuses: UnboundedSender<StatusChange>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Engine {
    /// Runs until all senders of inputs, or the receiver of statuses, are gone.
    pub(crate) fn run(self) {
        let mut state = ClusterState::default();
        let mut resolver = Resolver::default();
        let mut of_neighbours = Resolver::default();
        let mut bundles = Bundles::default();
        let mut pending = Pending::new();
        loop {
            let input = match pending.task(Instant::now()) {
                Task::Wait(None) => self.inputs.recv().map_err(RecvTimeoutError::from),
                Task::Wait(Some(time)) => self.inputs.recv_timeout(time),
                Task::Refresh => {
                    let services = pending.take_services();
                    let sets = state.endpoint_sets(&services, &self.options);
                    match bundles.refresh(&sets) {
                        Refresh::Same => {}
                        Refresh::Changed(desired) => {
                            self.desired.send_replace(Some(Arc::new(desired)));
                            pending.offered(Instant::now());
                        }
                        Refresh::Whole => pending.note(Effect::world(), Instant::now()),
                    }
                    continue;
                }
                Task::Settle => {
                    pending.look();
                    if pending.unresolved {
                        self.want(&mut state);
                    }
                    if !state.is_whole() {
                        continue;
                    }
                    let mut outcome = None;
                    let routes = std::mem::take(&mut pending.routes);
                    if !pending.unresolved && !routes.is_empty() {
                        let update =
                            self.reroute(&state, &routes, &mut of_neighbours, &mut bundles);
                        outcome = update.map(Resolved::Routes);
                        pending.unresolved = outcome.is_none();
                    }
                    if pending.unresolved {
                        let statuses = self.resolve(&mut state, &mut resolver, &mut bundles);
                        outcome = Some(Resolved::World(statuses));
                        pending.resolved(Instant::now());
                    }
                    if outcome.is_some() {
                        state.note_resolved();
                    }
                    let change = StatusChange {
                        stored: std::mem::take(&mut pending.stored),
                        resolved: outcome,
                    };
                    let nothing = change.stored.is_empty() && change.resolved.is_none();
                    if !nothing && self.statuses.send(change).is_err() {
                        return;
                    }
                    continue;
                }
            };
            match input {
                Ok(input) => {
                    // All inputs that have arrived already are one change.
                    let more = std::iter::from_fn(|| self.inputs.try_recv().ok());
                    for input in std::iter::once(input).chain(more) {
                        let effect = state.take(input, &self.metrics);
                        pending.note(effect, Instant::now());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Has the objects read that the world refers to, and forgets those that it no longer refers to.
    fn want(&self, state: &mut ClusterState) {
        if !state.is_listed() {
            return;
        }
        let wanted: BTreeSet<ObjectKey> = references(state.world(), &self.options.controller_name);
        if state.refer_to(&wanted) {
            self.references.send_replace(Arc::new(wanted));
        }
    }

    /// Resolves changed routes with their neighbours alone; none if it takes a whole resolution.
    fn reroute(
        &self,
        state: &ClusterState,
        before: &Before,
        resolver: &mut Resolver,
        bundles: &mut Bundles,
    ) -> Option<RouteStatusUpdate> {
        // In that mode, the Gateways that exist decide which one is served.
        if self.mode == Mode::Single {
            return None;
        }
        let start = Instant::now();
        let Rerouted { hosts, statuses } = reroute(state.world(), before, resolver, &self.options)?;
        let mut changed = BTreeMap::new();
        if !hosts.is_empty() {
            let desired = bundles.reroute(hosts)?;
            changed = revisions(&desired);
            self.desired.send_replace(Some(Arc::new(desired)));
        }
        self.metrics.rerouted(start.elapsed());
        let now = |other: OtherStatus| (other.route, other.now);
        Some(RouteStatusUpdate {
            routes: statuses.into_iter().map(now).collect(),
            revisions: changed,
        })
    }

    fn resolve(
        &self,
        state: &mut ClusterState,
        resolver: &mut Resolver,
        bundles: &mut Bundles,
    ) -> Arc<ResolvedStatuses> {
        let start = Instant::now();
        let (mut resolution, unserved) = match self.mode {
            Mode::Multiple => (
                resolver.resolve(state.world(), &self.options),
                BTreeSet::new(),
            ),
            Mode::Single => single::resolve(state.world(), resolver, &self.options),
        };
        for problem in &resolution.problems {
            tracing::debug!(object = %problem.object, "{}", problem.message);
        }
        state.keep(std::mem::take(&mut resolution.last_good));
        let gateways = std::mem::take(&mut resolution.gateways);
        let expiries: BTreeMap<_, _> = gateways
            .iter()
            .map(|gateway| {
                let expiries = gateway.keys.iter().filter_map(Expiry::of);
                (gateway.gateway.clone(), expiries.collect())
            })
            .collect();
        self.metrics.certificates(&expiries);
        let (desired, unpublishable) =
            bundles.build(gateways, &resolution.statuses, &unserved, state);
        self.metrics.resolved(
            start.elapsed(),
            state.world(),
            desired.len(),
            state.broken_count(),
        );
        let desired = Arc::new(desired);
        let statuses = Arc::new(ResolvedStatuses {
            statuses: resolution.statuses,
            revisions: revisions(&desired),
            unpublishable,
            expiries,
        });
        self.desired.send_replace(Some(desired));
        statuses
    }
}
