//! Finds hostnames that a route loses to a more specific listener of a lower-ranking Gateway,
//! ListenerSet, HTTPProxy or Ingress.
//!
//! Listeners of the same object are not compared, because authors may split hostnames
//! intentionally.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::displaced::Displaced;
use super::placed::PlacedListener;
use crate::listeners::Rank;
use crate::syntax::hostnames::Hostname;
use sesame_kinds::status::Reason;
use sesame_kinds::world::Kind;

pub(super) fn find(listeners: &[&PlacedListener<'_>], displaced: &mut Displaced) {
    let receivers: Vec<Receiver<'_, '_>> = listeners
        .iter()
        .filter(|listener| listener.listener.rank > Rank::default())
        .map(|listener| Receiver::new(listener))
        .collect();
    if receivers.is_empty() {
        return;
    }
    let exact: HashMap<&str, &Receiver<'_, '_>> = receivers
        .iter()
        .map(|receiver| (receiver.listener.hostname.key(), receiver))
        .collect();
    let all: HashSet<&str> = listeners
        .iter()
        .map(|listener| listener.hostname.key())
        .collect();
    // Skip exact hostnames: no hostname is more specific, and there may be thousands of them. The
    // wildcard of an HTTPProxy or Ingress never claims the hosts of others.
    let claims = |it: &&&PlacedListener<'_>| {
        let owner = it.listener.owner;
        !it.hostname.is_exact() && !matches!(owner, Kind::HttpProxy | Kind::Ingress)
    };
    for loser in listeners.iter().filter(claims) {
        let behind: Vec<&Receiver<'_, '_>> = receivers
            .iter()
            .filter(|receiver| receiver.goes_behind(loser))
            .collect();
        if behind.is_empty() {
            continue;
        }
        for attachment in loser.attachments {
            let mut lost: BTreeSet<(&Hostname, &str)> = BTreeSet::new();
            for host in attachment.hosts {
                let domain = &host.domain;
                if domain.is_exact() {
                    let owner = domain.covering_keys().find(|key| all.contains(key));
                    let nearest = owner.and_then(|key| exact.get(key));
                    let receiver =
                        nearest.filter(|receiver| receiver.takes_from(loser, attachment.route));
                    lost.extend(receiver.map(|receiver| receiver.with_holder(loser)));
                } else {
                    let receivers = behind.iter().filter(|receiver| {
                        domain.intersect(receiver.listener.hostname).is_some()
                            && receiver.takes_from(loser, attachment.route)
                    });
                    lost.extend(receivers.map(|receiver| receiver.with_holder(loser)));
                }
            }
            for (hostname, holder) in lost {
                displaced.add(
                    attachment.route,
                    Some(attachment.parent),
                    Reason::HostnameTaken,
                    format!(
                        "requests for hostname {:?} on port {} go to {holder}, whose listener is \
                        more specific than listener {:?}",
                        hostname.domain(),
                        loser.port,
                        loser.listener.spec.name
                    ),
                );
            }
        }
    }
}

/// A listener that may take hostnames from listeners of higher-ranking objects.
struct Receiver<'p, 'a> {
    listener: &'p PlacedListener<'a>,
    routes: HashSet<usize>,
}

impl<'p, 'a> Receiver<'p, 'a> {
    fn new(listener: &'p PlacedListener<'a>) -> Self {
        let attachments = listener.attachments.iter();
        Self {
            listener,
            routes: attachments.map(|attachment| attachment.route).collect(),
        }
    }

    /// Returns true if `other` ranks higher, but this listener's hostname is more specific.
    fn goes_behind(&self, other: &PlacedListener<'_>) -> bool {
        self.listener.listener.rank > other.listener.rank
            && self.listener.hostname != other.hostname
            && other.hostname.covers(self.listener.hostname)
    }

    fn with_holder(&self, other: &PlacedListener<'_>) -> (&'a Hostname, &'static str) {
        let (own, other) = (self.listener.listener.rank, other.listener.rank);
        let holder = if own.gateway == other.gateway {
            "a ListenerSet, HTTPProxy or Ingress"
        } else {
            "another Gateway on the same Envoys"
        };
        (self.listener.hostname, holder)
    }

    fn takes_from(&self, other: &PlacedListener<'_>, route: usize) -> bool {
        self.goes_behind(other) && !self.routes.contains(&route)
    }
}
