//! Turns watch events into publications and statuses. Nothing is resolved until the world is
//! complete, because a missing object could withdraw a publication. Incremental results must equal
//! those of a full resolution. The engine never waits for a write.

mod carried;
mod cluster_state;
#[cfg(test)]
mod incremental_tests;
mod pending;
mod publications;
#[cfg(test)]
mod refresh_tests;
mod relevant;
mod single;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Instant, SystemTime};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

pub(crate) use self::carried::PublishedSets;
use self::cluster_state::{ClusterState, Effect};
use self::pending::{Pending, Task};
use self::publications::{Publications, Refresh};
use crate::changes::{Changes, SeenObjects};
use crate::configuration::{ControllerSettings, CurrentSettings, SelectionRule};
use crate::publish::{DesiredPublications, RolloutNotes, revisions};
use crate::replica::replace;
use crate::serve::Metrics;
use crate::statuses::{
    Resolved, ResolvedStatuses, RouteStatusUpdate, ServiceRequests, SettingsByGateway, StatusChange,
};
use crate::watch::{Input, References, references};
use sesame_acme::CertificateRequests;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::ObjectKey;
use sesame_proto::key_sets::KeySetRequests;
use sesame_resolver::incremental::{
    PreviousObjects, PreviousRoutes, PreviousServices, RouteDelta, RouteStatusChange,
    resolve_routes,
};
use sesame_resolver::{OcgBundles, Options, RemoteKeySets, Resolver, with_implied_gateway};

pub(crate) struct Engine {
    pub(crate) inputs: Receiver<Input>,
    pub(crate) settings: ControllerSettings,
    /// Each change also sends [`Input::Configured`].
    pub(crate) current: watch::Receiver<CurrentSettings>,
    pub(crate) references: watch::Sender<References>,
    /// `None` until all kinds have been listed.
    pub(crate) key_sets: watch::Sender<Option<Arc<KeySetRequests>>>,
    pub(crate) desired: watch::Sender<Option<Arc<DesiredPublications>>>,
    pub(crate) statuses: UnboundedSender<StatusChange>,
    pub(crate) gateway_settings: watch::Sender<SettingsByGateway>,
    pub(crate) services: watch::Sender<ServiceRequests>,
    /// `None` before the first resolution and while the feature is disabled.
    pub(crate) ocg_bundles: watch::Sender<Option<Arc<OcgBundles>>>,
    pub(crate) certificate_requests: watch::Sender<Option<Arc<CertificateRequests>>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) changes: Changes,
    pub(crate) rollouts: watch::Receiver<RolloutNotes>,
}

struct Memory {
    state: ClusterState,
    resolver: Resolver,
    publications: Publications,
    pending: Pending,
    seen: SeenObjects,
}

impl Engine {
    pub(crate) fn run(mut self) {
        let mut memory = Memory {
            state: ClusterState::awaiting_hosts(),
            resolver: Resolver::default(),
            publications: Publications::default(),
            pending: Pending::new(),
            seen: SeenObjects::default(),
        };
        loop {
            let input = match memory.pending.task(Instant::now()) {
                Task::Wait(None) => self.inputs.recv().map_err(RecvTimeoutError::from),
                Task::Wait(Some(time)) => self.inputs.recv_timeout(time),
                Task::Refresh => {
                    self.refresh(&mut memory);
                    continue;
                }
                Task::Settle => {
                    let change = self.settle(&mut memory);
                    if change.is_some_and(|change| self.statuses.send(change).is_err()) {
                        return;
                    }
                    continue;
                }
            };
            match input {
                Ok(input) => {
                    // Handle all inputs that have already arrived as a single change.
                    let more = std::iter::from_fn(|| self.inputs.try_recv().ok());
                    for input in std::iter::once(input).chain(more) {
                        self.apply(&mut memory, input);
                    }
                    let now = self.current.borrow_and_update().clone();
                    let now = now.map(|mut settings| {
                        let Options {
                            namespace,
                            salt_key,
                            has_acme_dns_hook,
                            ..
                        } = &self.settings.options;
                        settings.options.namespace.clone_from(namespace);
                        settings.options.salt_key.clone_from(salt_key);
                        settings.options.has_acme_dns_hook = *has_acme_dns_hook;
                        settings
                    });
                    if let Some(settings) = now.ok().filter(|now| *now != self.settings) {
                        // Settings can affect every Gateway, so resolve everything.
                        self.settings = settings;
                        memory.pending.add(Effect::world(), Instant::now());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn apply(&self, memory: &mut Memory, input: Input) {
        let object = self.changes.is_on().then(|| input.object());
        let effect = memory.state.apply(input, &self.metrics);
        if let Some(Some((object, seen))) = object
            && effect.is_resolved()
        {
            memory.seen.record(object, seen);
        }
        memory.pending.add(effect, Instant::now());
    }

    /// Updates endpoints, or schedules a resolution if that is not enough.
    fn refresh(&self, memory: &mut Memory) {
        let Memory {
            state,
            publications,
            pending,
            ..
        } = memory;
        let (services, fleets) = pending.take_endpoints();
        let sets = state.endpoint_sets(&services, &fleets, &self.settings.options);
        match publications.refresh(sets) {
            Refresh::Same => {}
            Refresh::Changed(desired) => {
                self.desired.send_replace(Some(Arc::new(desired)));
                pending.start_pause(Instant::now());
            }
            Refresh::Whole => pending.add(Effect::world(), Instant::now()),
        }
    }

    /// Returns `None` while objects are missing.
    fn settle(&self, memory: &mut Memory) -> Option<StatusChange> {
        let Memory {
            state,
            resolver,
            publications,
            pending,
            seen,
        } = memory;
        pending.begin_attempt();
        if pending.unresolved {
            self.request_references(state);
        }
        if !state.is_whole() {
            return None;
        }
        let mut outcome = None;
        let routes = std::mem::take(&mut pending.routes);
        if !pending.unresolved && !routes.is_empty() {
            let update = self.resolve_routes(state, &routes, resolver, publications, seen);
            outcome = update.map(Resolved::Routes);
            pending.unresolved = outcome.is_none();
        }
        if pending.unresolved {
            outcome = Some(Resolved::World(self.resolve(
                state,
                resolver,
                publications,
                seen,
            )));
            pending.resolved(Instant::now());
        }
        if outcome.is_some() {
            state.record_resolved();
            // Only changes that affect a Gateway get a span.
            *seen = SeenObjects::default();
        }
        let change = StatusChange {
            stored: std::mem::take(&mut pending.stored),
            resolved: outcome,
        };
        let nothing = change.stored.is_empty() && change.resolved.is_none();
        (!nothing).then_some(change)
    }

    fn request_references(&self, state: &mut ClusterState) {
        if !state.is_listed() {
            return;
        }
        let (world, options) = (state.world(), &self.settings.options);
        let world = &*with_implied_gateway(world, options);
        let key_sets = RemoteKeySets::of(world, options);
        replace(&self.key_sets, Some(Arc::new(key_sets.requests())));
        let wanted: BTreeSet<ObjectKey> = references(world, options, &key_sets);
        if let Some(references) = state.refer_to(&wanted) {
            self.references.send_replace(references);
        }
    }

    /// Returns `None` if a full resolution is needed.
    fn resolve_routes(
        &self,
        state: &ClusterState,
        before: &PreviousRoutes,
        resolver: &mut Resolver,
        publications: &mut Publications,
        seen: &mut SeenObjects,
    ) -> Option<RouteStatusUpdate> {
        // In the other modes, which Gateway is served depends on all existing Gateways.
        if self.settings.selection != SelectionRule::Multiple {
            return None;
        }
        let (start, start_time) = (Instant::now(), SystemTime::now());
        let options = &self.settings.options;
        // A change to a relevant Service triggers a full resolution.
        let before = PreviousObjects {
            routes: before.clone(),
            services: PreviousServices::new(),
        };
        let sets_of = |services: &BTreeSet<NamespacedName>| state.sets_of(services, options);
        let delta = resolve_routes(state.world(), before, &sets_of, resolver, options)?;
        let RouteDelta { gateways, statuses } = delta;
        let mut changed = BTreeMap::new();
        if !gateways.is_empty() {
            let desired = publications.change(&gateways)?;
            changed = revisions(&desired);
            self.changes.resolved(seen, start_time, &changed);
            self.desired.send_replace(Some(Arc::new(desired)));
        }
        self.metrics.resolved_routes(start.elapsed());
        let now = |change: RouteStatusChange| (change.route, change.after);
        Some(RouteStatusUpdate {
            routes: statuses.into_iter().map(now).collect(),
            revisions: changed,
        })
    }

    fn resolve(
        &self,
        state: &mut ClusterState,
        resolver: &mut Resolver,
        publications: &mut Publications,
        seen: &mut SeenObjects,
    ) -> Arc<ResolvedStatuses> {
        let (start, start_time) = (Instant::now(), SystemTime::now());
        let (mut resolution, unserved) = match &self.settings.selection {
            SelectionRule::Multiple => single::all(state.world(), resolver, &self.settings.options),
            rule => single::resolve(state.world(), resolver, &self.settings.options, rule),
        };
        state.withhold_undecodable(&mut resolution);
        state.withhold_unknown(&mut resolution);
        publications
            .published_sets
            .append(&mut state.take_published_sets());
        state.keep_parameters(std::mem::take(&mut resolution.last_parameters));
        for problem in &resolution.problems {
            tracing::debug!(object = %problem.object, "{}", problem.message);
        }
        state.keep(
            std::mem::take(&mut resolution.last_good),
            std::mem::take(&mut resolution.served_together),
        );
        let services = std::mem::take(&mut resolution.services);
        let by_service = services
            .iter()
            .filter(|(_, request)| request.gives_addresses);
        let by_service = by_service.map(|(name, _)| name.clone()).collect();
        // Receivers that see a Gateway's settings must also see its Service request, so update the
        // Service requests first.
        replace(&self.services, Arc::new(services));
        let ocg_bundles = std::mem::take(&mut resolution.ocg_bundles);
        let is_enabled = self.settings.options.extra_minimal_ocg;
        replace(&self.ocg_bundles, is_enabled.then(|| Arc::new(ocg_bundles)));
        let requests = std::mem::take(&mut resolution.certificate_requests);
        replace(&self.certificate_requests, Some(Arc::new(requests)));
        let settings = Arc::new(std::mem::take(&mut resolution.settings));
        replace(&self.gateway_settings, Arc::clone(&settings));
        let expiries = resolution.expiries();
        let listener_expiries = resolution.listener_expiries();
        self.metrics.certificates(&expiries);
        self.metrics.uncovered(&resolution.uncovered);
        self.metrics
            .http_proxies(&resolution.statuses, state.world());
        let names = publications::names(&resolution, &unserved, state, &self.settings.options);
        let world = &*with_implied_gateway(state.world(), &self.settings.options);
        let mut gateways = std::mem::take(&mut resolution.gateways);
        let current =
            |services: &_| state.endpoint_sets(services, &BTreeSet::new(), &self.settings.options);
        publications.carry(&mut gateways, &self.rollouts.borrow(), current);
        let (desired, unpublishable) = publications.build(gateways, names, &settings, world);
        self.metrics.resolved(
            start.elapsed(),
            state.world(),
            desired.len(),
            state.broken_count(),
        );
        let desired = Arc::new(desired);
        let merged = resolution.merged.into_iter();
        let statuses = Arc::new(ResolvedStatuses {
            statuses: resolution.statuses,
            merged: merged
                .map(|(gateway, it)| (gateway, it.published_as))
                .collect(),
            revisions: revisions(&desired),
            unpublishable,
            by_service,
            expiries,
            listener_expiries,
            layers_unknown: resolution.layers_unknown,
            kept_layers: resolution.kept_layers,
            uncovered: resolution.uncovered,
        });
        self.changes.resolved(seen, start_time, &statuses.revisions);
        self.desired.send_replace(Some(desired));
        statuses
    }
}
