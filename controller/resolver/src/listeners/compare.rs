//! Compares listeners that the same Envoy instances serve: namespace shares, conflicts and
//! overlapping hostnames.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::conflicts::{self, Claim};
use super::listener::CheckedListener;
use super::overlaps;
use crate::syntax::limits::MAX_ATTACHED_LISTENERS;
use sesame_kinds::status::Reason;

pub(crate) struct ComparedGateway<'c, 'w> {
    /// Name for messages, in the form `Gateway namespace/name`.
    pub(crate) name: String,
    pub(crate) namespace: &'w str,
    pub(crate) listeners: &'c mut [CheckedListener<'w>],
    /// Number of listeners in the Gateway's spec. The listeners of other objects follow.
    pub(crate) own: usize,
    /// Index ranges of other objects' listeners, with each object's namespace.
    pub(crate) sets: Vec<(&'w str, Range<usize>)>,
}

/// The Gateways must be in order of precedence.
pub(crate) fn compare(gateways: &mut [ComparedGateway<'_, '_>]) {
    for (place, gateway) in gateways.iter_mut().enumerate() {
        for listener in gateway.listeners.iter_mut() {
            listener.rank.gateway = place;
        }
    }
    refuse_beyond_shares(gateways);
    let names: Vec<String> = gateways.iter().map(|it| it.name.clone()).collect();
    let all = gateways.iter_mut().flat_map(|it| it.listeners.iter_mut());
    let mut all: Vec<_> = all.collect();
    find_conflicts(&mut all, &names);
    overlaps::find_by_hostname(&mut all, &names);
}

/// The certificates must already be resolved.
pub(crate) fn compare_certificates(gateways: &mut [(String, &mut [CheckedListener<'_>])]) {
    let names: Vec<String> = gateways.iter().map(|(name, _)| name.clone()).collect();
    let all = gateways
        .iter_mut()
        .flat_map(|(_, listeners)| listeners.iter_mut());
    overlaps::find_by_certificate(&mut all.collect::<Vec<_>>(), &names);
}

/// Listeners in a Gateway's spec count only if several Gateways share the same Envoy instances.
fn refuse_beyond_shares(gateways: &mut [ComparedGateway<'_, '_>]) {
    let alone = gateways.len() == 1;
    let (whose, on) = if alone {
        ("ListenerSets, HTTPProxies and Ingresses", "on the Gateway")
    } else {
        let all = "Gateways, ListenerSets, HTTPProxies and Ingresses";
        (all, "on the same Envoys")
    };
    let together = if alone {
        "it may have together with these objects"
    } else {
        "Gateways on the same Envoys may have"
    };
    let own_ports = gateways
        .iter()
        .flat_map(|it| it.listeners.iter().take(it.own));
    let own_ports: BTreeSet<u16> = own_ports.filter_map(|it| it.port).collect();
    let mut room = MAX_ATTACHED_LISTENERS;
    let mut asked = Asked::default();
    let mut costs = Vec::new();
    for gateway in gateways.iter() {
        if alone {
            room = room.saturating_sub(gateway.own);
        }
        for (namespace, range) in gateway.shared(alone) {
            for listener in gateway.listeners.get(range).unwrap_or_default() {
                let port = listener.port.filter(|port| !own_ports.contains(port));
                costs.push(asked.add(namespace, port));
            }
        }
    }
    let counts: Vec<usize> = asked.counts.values().copied().collect();
    let share = fair_share(room, &counts);
    let mut costs = costs.into_iter();
    let mut had: BTreeMap<&str, usize> = BTreeMap::new();
    for gateway in gateways {
        for (namespace, range) in gateway.shared(alone) {
            let had = had.entry(namespace).or_default();
            for listener in gateway.listeners.get_mut(range).unwrap_or_default() {
                *had += costs.next().unwrap_or_default();
                if *had > share {
                    listener.beyond_share = true;
                    listener.accepted.refuse(
                        Reason::TooManyListeners,
                        format!(
                            "with this one, {whose} in namespace {namespace:?} exceed their share {on}: {share} \
                             listeners and ports, of the {MAX_ATTACHED_LISTENERS} that {together}; use fewer \
                             listeners, or ports that the Gateway's own listeners already use"
                        ),
                    );
                }
            }
        }
    }
}

#[derive(Default)]
struct Asked<'w> {
    counts: BTreeMap<&'w str, usize>,
    ports: BTreeSet<(&'w str, u16)>,
}

impl<'w> Asked<'w> {
    /// A listener costs 1, or 2 if it opens a port, because a port needs sockets and a share of the
    /// connections. `port` is `None` if a listener in a Gateway's spec opens the port.
    fn add(&mut self, namespace: &'w str, port: Option<u16>) -> usize {
        let opens = port.is_some_and(|port| self.ports.insert((namespace, port)));
        let cost = 1 + usize::from(opens);
        *self.counts.entry(namespace).or_default() += cost;
        cost
    }
}

impl<'w> ComparedGateway<'_, 'w> {
    /// Returns the listeners that count towards a namespace's share.
    fn shared(&self, alone: bool) -> Vec<(&'w str, Range<usize>)> {
        let own = (!alone).then_some((self.namespace, 0..self.own));
        own.into_iter().chain(self.sets.iter().cloned()).collect()
    }
}

/// Returns each namespace's maximum share of `room` (max-min fairness). Large requests never reduce
/// the share of small ones.
fn fair_share(mut room: usize, asked: &[usize]) -> usize {
    let mut asked = asked.to_vec();
    asked.sort_unstable();
    let mut others = asked.len();
    for count in &asked {
        let share = room / others.max(1);
        if *count > share {
            return share;
        }
        room = room.saturating_sub(*count);
        others = others.saturating_sub(1);
    }
    usize::MAX
}

fn find_conflicts(listeners: &mut [&mut CheckedListener<'_>], gateways: &[String]) {
    let mut indices = Vec::new();
    let mut claims = Vec::new();
    for (i, listener) in listeners.iter().enumerate() {
        if let (true, Some(port), Some(protocol), Some(hostname)) = (
            listener.accepted.good(),
            listener.port,
            listener.protocol,
            &listener.hostname,
        ) {
            indices.push(i);
            claims.push(Claim {
                rank: listener.rank,
                name: &listener.spec.name,
                port,
                protocol,
                hostname,
            });
        }
    }
    let found = conflicts::find(&claims, gateways);
    for (i, conflict) in indices.into_iter().zip(found) {
        let (Some(listener), Some((reason, message))) = (listeners.get_mut(i), conflict) else {
            continue;
        };
        listener.accepted.refuse(reason, &message);
        listener.conflict = Some((reason, message));
    }
}
