//! What a valid route does not get because others go before it: a condition on the route, and a problem.
//!
//! A route is accepted all the same, since nothing is wrong with it. Nobody is told what another namespace has.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::Placed;
use crate::resolve::context::Problems;
use crate::resolve::routes::Routes;
use crate::resolve::syntax::hostnames::Hostname;
use crate::status::{Condition, ConditionStatus, ConditionType, Reason, RouteStatus};
use crate::world::ObjectKey;

/// What was noticed so far: by route and by the place of the parent reference among those of its status.
#[derive(Debug, Default)]
pub(crate) struct Displaced(BTreeMap<(usize, usize), BTreeSet<(Reason, String)>>);

impl Displaced {
    /// Notes what a route loses through one of its parents.
    pub(crate) fn add(
        &mut self,
        route: usize,
        parent: Option<usize>,
        reason: Reason,
        message: String,
    ) {
        let key = (route, parent.unwrap_or_default());
        self.0.entry(key).or_default().insert((reason, message));
    }

    /// Tells the authors of the routes.
    pub(crate) fn tell(
        self,
        routes: &Routes,
        statuses: &mut BTreeMap<ObjectKey, RouteStatus>,
        problems: &mut Problems,
    ) {
        for ((route, parent), losses) in self.0 {
            let Some(route) = routes.get(route) else {
                continue;
            };
            let Some((reason, _)) = losses.first() else {
                continue;
            };
            let messages: Vec<&str> = losses.iter().map(|(_, message)| message.as_str()).collect();
            // As many as fit into a message that people read.
            let shown = messages.get(..MOST_SHOWN).unwrap_or(&messages).join("; ");
            let message = match messages.len().saturating_sub(MOST_SHOWN) {
                0 => shown,
                more => format!("{shown}; and {more} more"),
            };
            let status = statuses.get_mut(&route.object);
            if let Some(parent) = status.and_then(|status| status.parents.get_mut(parent)) {
                let generation = parent
                    .conditions
                    .first()
                    .map_or(0, |condition| condition.observed_generation);
                parent.conditions.push(Condition::new(
                    ConditionType::Displaced,
                    ConditionStatus::True,
                    *reason,
                    &message,
                    generation,
                ));
            }
            problems.add(route.object.clone(), message);
        }
    }
}

const MOST_SHOWN: usize = 4;

/// How the author of `loser` may call the route that goes before it.
pub(crate) fn winner(winner: usize, loser: usize, routes: &Routes) -> String {
    let (Some(winner), Some(loser)) = (routes.get(winner), routes.get(loser)) else {
        return "another route".to_owned();
    };
    if winner.object.name.namespace == loser.object.name.namespace {
        winner.object.to_string()
    } else {
        format!("a {} of another namespace", winner.object.kind)
    }
}

/// Notes which routes of the listeners of one port lose hostnames to listeners of ListenerSets that go behind theirs.
///
/// A more specific hostname takes its requests wherever it comes from. That one object is to share out its hostnames
/// among its own listeners is its author's wish; that another's listener takes one is told.
pub(crate) fn by_listener_sets(listeners: &[&Placed<'_>], displaced: &mut Displaced) {
    let takers: Vec<Taker<'_, '_>> = listeners
        .iter()
        .filter(|listener| listener.state.rank > 0)
        .map(|listener| Taker::of(listener))
        .collect();
    if takers.is_empty() {
        return;
    }
    let exact: HashMap<&str, &Taker<'_, '_>> = takers
        .iter()
        .map(|taker| (taker.listener.hostname.key(), taker))
        .collect();
    let all: HashSet<&str> = listeners
        .iter()
        .map(|listener| listener.hostname.key())
        .collect();
    for loser in listeners {
        let behind: Vec<&Taker<'_, '_>> = takers
            .iter()
            .filter(|taker| taker.goes_behind(loser))
            .collect();
        if behind.is_empty() {
            continue;
        }
        for attachment in &loser.state.attachments {
            let mut lost: BTreeSet<&Hostname> = BTreeSet::new();
            for host in &attachment.hosts {
                let domain = &host.domain;
                if domain.is_exact() {
                    let owner = domain.covering_keys().find(|key| all.contains(key));
                    let nearest = owner.and_then(|key| exact.get(key));
                    let taker = nearest.filter(|taker| taker.takes_from(loser, attachment.route));
                    lost.extend(taker.map(|taker| taker.listener.hostname));
                } else {
                    let takers = behind.iter().filter(|taker| {
                        domain.intersect(taker.listener.hostname).is_some()
                            && taker.takes_from(loser, attachment.route)
                    });
                    lost.extend(takers.map(|taker| taker.listener.hostname));
                }
            }
            for hostname in lost {
                displaced.add(
                    attachment.route,
                    Some(attachment.parent),
                    Reason::HostnameTaken,
                    format!(
                        "requests for hostname {:?} on port {} do not come here: a ListenerSet has a listener for it, \
                         which is more specific than listener {:?}",
                        hostname.domain(),
                        loser.port,
                        loser.state.spec.name
                    ),
                );
            }
        }
    }
}

/// A listener of a ListenerSet, and the routes that it has.
struct Taker<'p, 'a> {
    listener: &'p Placed<'a>,
    routes: HashSet<usize>,
}

impl<'p, 'a> Taker<'p, 'a> {
    fn of(listener: &'p Placed<'a>) -> Self {
        let attachments = listener.state.attachments.iter();
        Self {
            listener,
            routes: attachments.map(|attachment| attachment.route).collect(),
        }
    }

    /// Whether it is of an object behind that of the other, with a hostname that was the other's.
    fn goes_behind(&self, other: &Placed<'_>) -> bool {
        self.listener.state.rank > other.state.rank
            && self.listener.hostname != other.hostname
            && other.hostname.covers(self.listener.hostname)
    }

    /// Whether it takes requests that the route would have from the other listener.
    fn takes_from(&self, other: &Placed<'_>, route: usize) -> bool {
        self.goes_behind(other) && !self.routes.contains(&route)
    }
}
