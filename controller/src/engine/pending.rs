//! What has changed and is not worked into what is offered yet, and when it will be. Pure: it is told the time.
//!
//! Endpoints of resolved Services have a way of their own, which is short. In a busy cluster they change all the time,
//! so what changes meanwhile is offered together.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::cluster_state::Effect;
use crate::report::Stored;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::incremental::PreviousRoutes;
use sesame_gateway_api::world::ObjectKey;

/// A change is resolved when nothing else arrives for this long.
const QUIET: Duration = Duration::from_millis(5);
/// Or when it has waited for this long.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// Endpoints that change at once are offered at once.
const GATHER: Duration = Duration::from_millis(2);
/// And this is how long the next ones are gathered.
const PAUSE: Duration = Duration::from_millis(150);

/// What waits.
#[derive(Debug)]
pub(super) struct Pending {
    /// Whether resolution may say something else than the last time.
    pub(super) unresolved: bool,
    /// Routes that are others now, as they were when they were last resolved.
    pub(super) routes: PreviousRoutes,
    /// Statuses that are stored otherwise.
    pub(super) stored: Vec<(ObjectKey, Option<Stored>)>,
    /// Services that have other endpoints.
    pub(super) services: BTreeSet<NamespacedName>,
    /// When the first and the last of what is to be resolved or told arrived; none once it was looked at.
    arrived: Option<(Instant, Instant)>,
    /// When the endpoints are due.
    refresh: Option<Instant>,
    /// Until when endpoints are gathered.
    paused: Option<Instant>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Nothing for this long; none for as long as nothing arrives.
    Wait(Option<Duration>),
    /// The endpoints of the Services are to be offered.
    Refresh,
    /// All of it is to be looked at.
    Settle,
}

impl Pending {
    /// Nothing was resolved yet.
    pub(super) fn new() -> Self {
        Self {
            unresolved: true,
            routes: PreviousRoutes::new(),
            stored: Vec::new(),
            services: BTreeSet::new(),
            arrived: None,
            refresh: None,
            paused: None,
        }
    }

    /// Takes what an input did.
    pub(super) fn note(&mut self, effect: Effect, now: Instant) {
        let Effect {
            world_changed,
            services,
            routes,
            stored,
        } = effect;
        if !services.is_empty() {
            self.services.extend(services);
            let due = (now + GATHER).max(self.paused.unwrap_or(now));
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

    /// What is to be done now.
    pub(super) fn task(&self, now: Instant) -> Task {
        let settle = self
            .arrived
            .map(|(first, last)| (last + QUIET).min(first + LONGEST_WAIT));
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

    /// The Services whose endpoints are looked at now.
    pub(super) fn take_services(&mut self) -> BTreeSet<NamespacedName> {
        self.refresh = None;
        std::mem::take(&mut self.services)
    }

    /// Endpoints are offered now; most that change in a cluster are of no Gateway's, and nothing waits for those.
    pub(super) fn offered(&mut self, now: Instant) {
        self.paused = Some(now + PAUSE);
    }

    /// Everything that has arrived is looked at now; what cannot be done yet waits for more.
    pub(super) fn look(&mut self) {
        self.arrived = None;
    }

    /// The whole world is resolved now, its endpoints too. The routes were taken for it.
    pub(super) fn resolved(&mut self, now: Instant) {
        self.unresolved = false;
        self.services.clear();
        self.refresh = None;
        self.offered(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints_of(service: &str) -> Effect {
        Effect {
            services: vec![NamespacedName::new("ns", service)],
            ..Effect::default()
        }
    }

    #[test]
    fn endpoints_go_at_once_and_those_right_after_go_together() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pending = Pending::new();
        pending.note(endpoints_of("a"), at(0));
        assert_eq!(pending.task(at(0)), Task::Wait(Some(GATHER)));
        assert_eq!(pending.task(at(2)), Task::Refresh);
        assert_eq!(pending.take_services().len(), 1);
        pending.offered(at(2));
        assert_eq!(pending.task(at(2)), Task::Wait(None));
        pending.note(endpoints_of("b"), at(10));
        pending.note(endpoints_of("c"), at(100));
        assert_eq!(
            pending.task(at(101)),
            Task::Wait(Some(Duration::from_millis(51)))
        );
        assert_eq!(pending.task(at(152)), Task::Refresh);
        assert_eq!(pending.take_services().len(), 2);
        // Nobody has them: the next ones wait for nothing.
        pending.note(endpoints_of("d"), at(160));
        assert_eq!(pending.task(at(162)), Task::Refresh);
    }

    #[test]
    fn what_is_resolved_waits_for_quiet_but_not_for_ever_and_endpoints_do_not_disturb_it() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pending = Pending::new();
        pending.note(Effect::world(), at(0));
        pending.note(endpoints_of("a"), at(4));
        assert_eq!(pending.task(at(5)), Task::Settle);
        for millis in (4..100).step_by(4) {
            pending.note(Effect::world(), at(millis));
            assert_ne!(pending.task(at(millis)), Task::Settle);
        }
        assert_eq!(pending.task(at(100)), Task::Settle);
        pending.look();
        pending.resolved(at(101));
        assert_eq!(
            pending.task(at(300)),
            Task::Wait(None),
            "its endpoints are resolved too"
        );
    }
}
