//! Tracks unpublished changes and decides when to handle them. Endpoints change all the time, so
//! their changes are batched after each publication.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::cluster_state::Effect;
use crate::watch::StoredStatus;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::ObjectKey;
use sesame_resolver::incremental::PreviousRoutes;

const QUIET_PERIOD: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_millis(100);
const BATCH_DELAY: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_millis(150);

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) unresolved: bool,
    /// Changed routes, as they were at the last resolution.
    pub(super) routes: PreviousRoutes,
    pub(super) stored: Vec<(ObjectKey, Option<StoredStatus>)>,
    pub(super) services: BTreeSet<NamespacedName>,
    /// Gateways whose number of live hosts changed.
    fleets: BTreeSet<NamespacedName>,
    /// Arrival times of the first and last changes that require a resolution or a status write.
    arrived: Option<(Instant, Instant)>,
    refresh: Option<Instant>,
    paused: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Waits for the next input if `None`.
    Wait(Option<Duration>),
    Refresh,
    Settle,
}

impl Pending {
    pub(super) fn new() -> Self {
        Self {
            unresolved: true,
            routes: PreviousRoutes::new(),
            stored: Vec::new(),
            services: BTreeSet::new(),
            fleets: BTreeSet::new(),
            arrived: None,
            refresh: None,
            paused: None,
        }
    }

    pub(super) fn add(&mut self, effect: Effect, now: Instant) {
        let Effect {
            world_changed,
            services,
            routes,
            stored,
            fleets,
        } = effect;
        if !services.is_empty() || !fleets.is_empty() {
            self.services.extend(services);
            self.fleets.extend(fleets);
            let due = (now + BATCH_DELAY).max(self.paused.unwrap_or(now));
            self.refresh.get_or_insert(due);
        }
        if world_changed || !routes.is_empty() || !stored.is_empty() {
            let (first, _) = self.arrived.unwrap_or((now, now));
            self.arrived = Some((first, now));
        }
        self.unresolved |= world_changed;
        for route in routes {
            self.routes.entry(route.key()).or_insert(route);
        }
        self.stored.extend(stored);
    }

    pub(super) fn task(&self, now: Instant) -> Task {
        let only_routes = !self.unresolved && !self.routes.is_empty();
        let quiet = if only_routes {
            BATCH_DELAY
        } else {
            QUIET_PERIOD
        };
        let settle = self
            .arrived
            .map(|(first, last)| (last + quiet).min(first + LONGEST_WAIT));
        let due = |time: &Option<Instant>| time.is_some_and(|time| time <= now);
        if due(&settle) {
            return Task::Settle;
        }
        if due(&self.refresh) {
            return Task::Refresh;
        }
        let next = settle.into_iter().chain(self.refresh).min();
        Task::Wait(next.map(|next| next.saturating_duration_since(now)))
    }

    /// Returns Services, and Gateways whose number of live hosts changed.
    pub(super) fn take_endpoints(
        &mut self,
    ) -> (BTreeSet<NamespacedName>, BTreeSet<NamespacedName>) {
        self.refresh = None;
        (
            std::mem::take(&mut self.services),
            std::mem::take(&mut self.fleets),
        )
    }

    /// Delays the next endpoint changes. Call only after a publication changed, because unused
    /// Services must not delay other changes.
    pub(super) fn start_pause(&mut self, now: Instant) {
        self.paused = Some(now + PAUSE);
    }

    /// If objects are still missing, the next input triggers another attempt.
    pub(super) fn begin_attempt(&mut self) {
        self.arrived = None;
    }

    /// The caller must already have taken the changed routes.
    pub(super) fn resolved(&mut self, now: Instant) {
        self.unresolved = false;
        self.services.clear();
        self.fleets.clear();
        self.refresh = None;
        self.start_pause(now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sesame_kinds::world::AnyObject;

    use super::*;

    fn endpoints_of(service: &str) -> Effect {
        Effect {
            services: vec![NamespacedName::new("ns", service)],
            ..Effect::default()
        }
    }

    #[test]
    fn endpoints_are_published_at_once_then_in_batches() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pending = Pending::new();
        pending.add(endpoints_of("a"), at(0));
        assert_eq!(pending.task(at(0)), Task::Wait(Some(BATCH_DELAY)));
        assert_eq!(pending.task(at(2)), Task::Refresh);
        assert_eq!(pending.take_endpoints().0.len(), 1);
        pending.start_pause(at(2));
        assert_eq!(pending.task(at(2)), Task::Wait(None));
        pending.add(endpoints_of("b"), at(10));
        pending.add(endpoints_of("c"), at(100));
        assert_eq!(
            pending.task(at(101)),
            Task::Wait(Some(Duration::from_millis(51)))
        );
        assert_eq!(pending.task(at(152)), Task::Refresh);
        assert_eq!(pending.take_endpoints().0.len(), 2);
        // Nothing was published, so the next endpoints are published without a delay.
        pending.add(endpoints_of("d"), at(160));
        assert_eq!(pending.task(at(162)), Task::Refresh);
    }

    #[test]
    fn few_routes_wait_less_than_whole_world() {
        let start = Instant::now();
        let mut pending = Pending::new();
        pending.resolved(start);
        let route = Effect {
            routes: vec![AnyObject::HttpRoute(Arc::default())],
            ..Effect::default()
        };
        pending.add(route, start);
        assert_eq!(pending.task(start), Task::Wait(Some(BATCH_DELAY)));
        assert_eq!(pending.task(start + BATCH_DELAY), Task::Settle);
        pending.add(Effect::world(), start);
        assert_eq!(pending.task(start), Task::Wait(Some(QUIET_PERIOD)));
    }

    #[test]
    fn resolution_waits_for_bounded_quiet_despite_endpoints() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pending = Pending::new();
        pending.add(Effect::world(), at(0));
        pending.add(endpoints_of("a"), at(4));
        assert_eq!(pending.task(at(5)), Task::Settle);
        for millis in (4..100).step_by(4) {
            pending.add(Effect::world(), at(millis));
            assert_ne!(pending.task(at(millis)), Task::Settle);
        }
        assert_eq!(pending.task(at(100)), Task::Settle);
        pending.begin_attempt();
        pending.resolved(at(101));
        assert_eq!(
            pending.task(at(300)),
            Task::Wait(None),
            "the resolution also updated the endpoints"
        );
    }
}
