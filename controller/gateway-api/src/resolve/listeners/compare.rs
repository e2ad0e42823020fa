//! Comparison of all listeners of a Gateway: shares of ListenerSets, conflicts, overlapping hostnames.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use sesame_proto::schema;

use super::conflicts::{self, Claim};
use super::listener::CheckedListener;
use crate::resolve::syntax::hostnames::Hostname;
use crate::resolve::syntax::limits::MAX_ATTACHED_LISTENERS;
use crate::status::Reason;

/// Compares the listeners of a Gateway and of its ListenerSets, in their order of precedence. The first `own` are those
/// of the Gateway; `sets` are the ranges of the others, each with the namespace of its ListenerSet.
pub(crate) fn compare(
    listeners: &mut [CheckedListener<'_>],
    own: usize,
    sets: &[(&str, Range<usize>)],
) {
    refuse_beyond_shares(listeners, own, sets);
    find_conflicts(listeners);
    find_overlaps(listeners);
}

/// Refuses the listeners by which the ListenerSets of a namespace exceed its share.
fn refuse_beyond_shares(
    listeners: &mut [CheckedListener<'_>],
    own: usize,
    sets: &[(&str, Range<usize>)],
) {
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    for (namespace, range) in sets {
        *asked.entry(namespace).or_default() += range.len();
    }
    let counts: Vec<usize> = asked.values().copied().collect();
    let share = fair_share(MAX_ATTACHED_LISTENERS.saturating_sub(own), &counts);
    let mut had: BTreeMap<&str, usize> = BTreeMap::new();
    for (namespace, range) in sets {
        let had = had.entry(namespace).or_default();
        for listener in listeners.get_mut(range.clone()).unwrap_or_default() {
            *had += 1;
            if *had > share {
                listener.accepted.refuse(
                    Reason::TooManyListeners,
                    format!(
                        "ListenerSets of namespace {namespace:?} have {share} listeners before this one on the Gateway, \
                         which is their share of the {MAX_ATTACHED_LISTENERS} that it may have together with its ListenerSets"
                    ),
                );
            }
        }
    }
}

/// Returns the most that each may have of `room`: those that ask for less get what they ask for, and the rest is shared
/// evenly. So one that asks for much takes nothing from one that asks for little, whichever came first.
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

/// Refuses the listeners that are in conflict, of those that are valid so far.
fn find_conflicts(listeners: &mut [CheckedListener<'_>]) {
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
    let found = conflicts::find(&claims);
    for (i, conflict) in indices.into_iter().zip(found) {
        let (Some(listener), Some((reason, message))) = (listeners.get_mut(i), conflict) else {
            continue;
        };
        listener.accepted.refuse(reason, &message);
        listener.conflict = Some((reason, message));
    }
}

/// Sets `overlaps` of the HTTPS listeners of each port.
fn find_overlaps(listeners: &mut [CheckedListener<'_>]) {
    let https = listeners.iter().enumerate().filter_map(|(i, listener)| {
        let is_https = listener.protocol == Some(schema::Protocol::Https);
        let hostname = listener.hostname.as_ref()?;
        (is_https && listener.accepted.good()).then_some((i, listener.port?, hostname))
    });
    let https: Vec<(usize, u16, &Hostname)> = https.collect();
    let by_key: HashMap<(u16, &str), usize> = https
        .iter()
        .map(|(i, port, hostname)| ((*port, hostname.key()), *i))
        .collect();
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (i, port, hostname) in &https {
        for key in hostname.covering_keys().skip(1) {
            if let Some(wider) = by_key.get(&(*port, key)) {
                pairs.extend([(*i, *wider), (*wider, *i)]);
            }
        }
    }
    let mut named: Vec<(usize, usize, String)> = pairs
        .into_iter()
        .filter_map(|(own, other)| {
            let (of, wider) = (listeners.get(own)?, listeners.get(other)?);
            // The name of a listener of another object is not told.
            let name = match (of.rank == wider.rank, wider.rank) {
                (true, _) => wider.spec.name.clone(),
                (false, 0) => "of the Gateway".to_owned(),
                (false, _) => "of a ListenerSet".to_owned(),
            };
            Some((own, wider.rank, name))
        })
        .collect();
    named.sort_unstable();
    for (own, _, name) in named {
        if let Some(listener) = listeners.get_mut(own)
            && !listener.overlaps.contains(&name)
        {
            listener.overlaps.push(name);
        }
    }
}
