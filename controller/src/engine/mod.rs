//! The engine: what the watches see in, what is to be published and said out. One thread; all of its work is CPU-bound.
//!
//! It resolves the whole world after a short quiet, and only a whole world: until every kind was listed once and
//! every object referred to was read, there is nothing to publish, so that nothing is withdrawn because something is
//! not known yet. Endpoints alone change nothing but endpoint shards, so those are made anew without resolving anything;
//! a few routes that change are resolved with their neighbours alone. Both with the outcome of a whole resolution. It
//! never waits for a write.

mod cluster_state;
#[cfg(test)]
mod incremental_tests;
mod offers;
mod pending;
#[cfg(test)]
mod refresh_tests;
mod relevant;
mod single;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

pub(crate) use self::cluster_state::Observed;
use self::cluster_state::{ClusterState, Effect};
use self::offers::{Bundles, Refresh};
pub(crate) use self::offers::{Offer, Offers};
use self::pending::{Pending, Task};
use crate::report::{Judged, Rejudged, Stored};
use crate::serve::Metrics;
use crate::watch::fetch::{Answer, References};
use crate::watch::{Seen, references};
use sesame_gateway_api::expiry::Expiry;
use sesame_gateway_api::resolve::incremental::{
    PreviousRoutes, RouteDelta, RouteStatusChange, resolve_routes,
};
use sesame_gateway_api::resolve::{Options, Resolver};
use sesame_gateway_api::world::{Kind, LastGoodKeys, ObjectKey};

/// What arrives.
#[derive(Debug)]
pub(crate) enum Input {
    /// A watch saw something.
    Seen {
        /// The kind that is watched.
        kind: Kind,
        /// What it saw.
        seen: Seen<Observed>,
    },
    /// What was published last, read before anything that is referred to.
    Published(LastGoodKeys),
    /// An object that is referred to was read.
    Fetched {
        /// Which.
        key: ObjectKey,
        /// What came of it.
        answer: Answer,
    },
}

/// Which Gateways are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All of all classes.
    Multiple,
    /// The oldest of the oldest class.
    Single,
}

/// A change for whoever writes statuses.
#[derive(Debug)]
pub(crate) struct StatusChange {
    /// Statuses as they are stored now; none of an object that is gone.
    pub(crate) stored: Vec<(ObjectKey, Option<Stored>)>,
    /// What is to be said now, when that may have changed.
    pub(crate) judgement: Option<Judgement>,
}

/// What is to be said.
#[derive(Debug)]
pub(crate) enum Judgement {
    /// Of everything.
    Whole(Arc<Judged>),
    /// Of some routes; nothing else has changed.
    Routes(Rejudged),
}

/// Everything the engine's thread owns.
pub(crate) struct Engine {
    pub(crate) inputs: Receiver<Input>,
    pub(crate) options: Options,
    pub(crate) mode: Mode,
    pub(crate) references: watch::Sender<References>,
    pub(crate) offers: watch::Sender<Option<Arc<Offers>>>,
    pub(crate) statuses: UnboundedSender<StatusChange>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Engine {
    /// Runs until nobody sends any more, or listens.
    pub(crate) fn run(self) {
        let mut state = ClusterState::default();
        let mut resolver = Resolver::default();
        let mut incremental = Resolver::default();
        let mut bundles = Bundles::default();
        let mut pending = Pending::new();
        loop {
            let input = match pending.task(Instant::now()) {
                Task::Wait(None) => self.inputs.recv().map_err(RecvTimeoutError::from),
                Task::Wait(Some(time)) => self.inputs.recv_timeout(time),
                Task::Refresh if !self.options.incremental => {
                    pending.take_services();
                    pending.note(Effect::world(), Instant::now());
                    continue;
                }
                Task::Refresh => {
                    let services = pending.take_services();
                    let sets = state.endpoint_sets(&services, &self.options);
                    match bundles.refresh(&sets) {
                        Refresh::Same => {}
                        Refresh::Offers(offers) => {
                            self.offers.send_replace(Some(Arc::new(offers)));
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
                    let mut judgement = None;
                    let routes = std::mem::take(&mut pending.routes);
                    if !pending.unresolved && !routes.is_empty() {
                        let rejudged =
                            self.resolve_routes(&state, &routes, &mut incremental, &mut bundles);
                        judgement = rejudged.map(Judgement::Routes);
                        pending.unresolved = judgement.is_none();
                    }
                    if pending.unresolved {
                        let judged = self.resolve(&mut state, &mut resolver, &mut bundles);
                        judgement = Some(Judgement::Whole(judged));
                        pending.resolved(Instant::now());
                    }
                    if judgement.is_some() {
                        state.note_resolved();
                    }
                    let change = StatusChange {
                        stored: std::mem::take(&mut pending.stored),
                        judgement,
                    };
                    let nothing = change.stored.is_empty() && change.judgement.is_none();
                    if !nothing && self.statuses.send(change).is_err() {
                        return;
                    }
                    continue;
                }
            };
            match input {
                Ok(input) => {
                    // All that is here already is one change.
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

    /// Has what the world refers to read, and forgets what it no longer refers to.
    fn want(&self, state: &mut ClusterState) {
        if !state.is_listed() {
            return;
        }
        let wanted: BTreeSet<ObjectKey> = references(state.world(), &self.options.controller_name);
        if state.refer_to(&wanted) {
            self.references.send_replace(Arc::new(wanted));
        }
    }

    /// Offers the outcome of routes that have changed; none if only a whole resolution tells.
    fn resolve_routes(
        &self,
        state: &ClusterState,
        before: &PreviousRoutes,
        resolver: &mut Resolver,
        bundles: &mut Bundles,
    ) -> Option<Rejudged> {
        // There, what Gateways there are decides which is served.
        if self.mode == Mode::Single {
            return None;
        }
        let start = Instant::now();
        let RouteDelta {
            route_tables,
            statuses,
        } = resolve_routes(state.world(), before, resolver, &self.options)?;
        let mut revisions = BTreeMap::new();
        if !route_tables.is_empty() {
            let offers = bundles.change_hosts(&route_tables)?;
            revisions = offers::revisions(&offers);
            self.offers.send_replace(Some(Arc::new(offers)));
        }
        self.metrics.resolved_routes(start.elapsed());
        let now = |change: RouteStatusChange| (change.route, change.after);
        Some(Rejudged {
            routes: statuses.into_iter().map(now).collect(),
            revisions,
        })
    }

    fn resolve(
        &self,
        state: &mut ClusterState,
        resolver: &mut Resolver,
        bundles: &mut Bundles,
    ) -> Arc<Judged> {
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
        let (offers, unpublishable) =
            bundles.offer(gateways, &resolution.statuses, &unserved, state);
        self.metrics.resolved(
            start.elapsed(),
            state.world(),
            offers.len(),
            state.broken_count(),
        );
        let offers = Arc::new(offers);
        let judged = Arc::new(Judged {
            statuses: resolution.statuses,
            revisions: offers::revisions(&offers),
            unpublishable,
            expiries,
        });
        self.offers.send_replace(Some(offers));
        judged
    }
}
