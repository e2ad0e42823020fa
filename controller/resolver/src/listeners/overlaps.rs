//! Finds overlaps between HTTPS listeners on a port. Clients may reuse a connection to one listener
//! for requests to another.

use std::collections::{BTreeMap, HashMap};

use sesame_proto::schema;

use super::listener::{CheckedListener, Rank};
use crate::syntax::hostnames::Hostname;
use sesame_kinds::world::Kind;

/// Maximum number of overlapping listeners that one listener names. Without a limit, listeners that
/// share a certificate would all list each other.
const MAX_NAMED: usize = 8;

fn https<'l>(
    listeners: &'l [&mut CheckedListener<'_>],
) -> impl Iterator<Item = (usize, u16, &'l Hostname)> {
    listeners.iter().enumerate().filter_map(|(i, listener)| {
        let is_https = listener.protocol == Some(schema::Protocol::Https);
        let hostname = listener.hostname.as_ref()?;
        (is_https && listener.accepted.good()).then_some((i, listener.port?, hostname))
    })
}

pub(super) fn find_by_hostname(listeners: &mut [&mut CheckedListener<'_>], gateways: &[String]) {
    let by_key: HashMap<(u16, &str), usize> = https(listeners)
        .map(|(i, port, hostname)| ((port, hostname.key()), i))
        .collect();
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (i, port, hostname) in https(listeners) {
        for key in hostname.covering_keys().skip(1) {
            if let Some(wider) = by_key.get(&(port, key)) {
                pairs.extend([(i, *wider), (*wider, i)]);
            }
        }
    }
    for (own, name) in named(&pairs, listeners, gateways) {
        if let Some(listener) = listeners.get_mut(own)
            && !listener.overlaps.contains(&name)
        {
            listener.overlaps.push(name);
        }
    }
}

/// The certificates must already be resolved.
pub(super) fn find_by_certificate(listeners: &mut [&mut CheckedListener<'_>], gateways: &[String]) {
    // Listener indices by certificate name, by hostname, and by each covering hostname.
    let mut owners: BTreeMap<(u16, Hostname), Vec<usize>> = BTreeMap::new();
    let mut by_key: HashMap<(u16, &str), Vec<usize>> = HashMap::new();
    let mut below: HashMap<(u16, &str), Vec<usize>> = HashMap::new();
    for (i, port, hostname) in https(listeners) {
        by_key.entry((port, hostname.key())).or_default().push(i);
        for key in hostname.covering_keys() {
            below.entry((port, key)).or_default().push(i);
        }
        let names = listeners.get(i).map(|listener| &listener.certificate_names);
        let names = names.into_iter().flatten();
        let names: Vec<Hostname> = names
            .filter_map(|name| Hostname::parse(name).ok())
            .collect();
        // Clients reject connections to a listener without a certificate for its host, so such
        // connections are never reused.
        if names.iter().any(|name| shared(name, hostname).is_some()) {
            for name in names {
                owners.entry((port, name)).or_default().push(i);
            }
        }
    }
    let hostname = |i: usize| listeners.get(i)?.hostname.as_ref();
    // True if clients may request `name` over a connection to `owner`, but `other` serves it.
    let differs = |owner: usize, other: usize, name: &Hostname| {
        let both = hostname(owner).zip(hostname(other));
        both.is_some_and(|(own, of_other)| {
            let is_own = |shared: &Hostname| own.covers(shared) && of_other.covers(own);
            own != of_other && shared(name, of_other).is_some_and(|shared| !is_own(shared))
        })
    };
    let mut pairs = Vec::new();
    for ((port, name), owners) in &owners {
        let mut members: Vec<usize> = name
            .covering_keys()
            .filter_map(|key| by_key.get(&(*port, key)))
            .flatten()
            .copied()
            .collect();
        if !name.is_exact() {
            members.extend(below.get(&(*port, name.key())).into_iter().flatten());
        }
        for owner in owners {
            let others = members
                .iter()
                .filter(|other| differs(*owner, **other, name));
            pairs.extend(others.take(MAX_NAMED).map(|other| (*owner, *other)));
        }
        for other in &members {
            let owners = owners.iter().filter(|owner| differs(**owner, *other, name));
            pairs.extend(owners.take(MAX_NAMED).map(|owner| (*other, *owner)));
        }
    }
    for (own, name) in named(&pairs, listeners, gateways) {
        if let Some(CheckedListener {
            certificate_overlaps,
            ..
        }) = listeners.get_mut(own).map(|listener| &mut **listener)
            && certificate_overlaps.len() < MAX_NAMED
            && !certificate_overlaps.contains(&name)
        {
            certificate_overlaps.push(name);
        }
    }
}

/// A wildcard in the certificate's name covers one label.
fn shared<'h>(name: &'h Hostname, listener: &'h Hostname) -> Option<&'h Hostname> {
    if listener.covers(name) {
        return Some(name);
    }
    let is_below = listener.is_exact() && listener.covering_keys().nth(1) == Some(name.key());
    is_below.then_some(listener)
}

/// Describes the second listener of each pair for the author of the first.
fn named(
    pairs: &[(usize, usize)],
    listeners: &[&mut CheckedListener<'_>],
    gateways: &[String],
) -> impl Iterator<Item = (usize, String)> + use<> {
    let mut named: Vec<(usize, Rank, String)> = pairs
        .iter()
        .filter_map(|(own, other)| {
            let (of, wider) = (listeners.get(*own)?, listeners.get(*other)?);
            // Never name listeners of other objects.
            let other = gateways.get(wider.rank.gateway);
            let name = match other.filter(|_| of.rank.gateway != wider.rank.gateway) {
                Some(gateway) => format!("of {gateway}"),
                None if of.rank == wider.rank => wider.spec.name.clone(),
                None if wider.rank.object == 0 => "of the Gateway".to_owned(),
                None if wider.owner == Kind::Ingress => "of an Ingress".to_owned(),
                None => format!("of a {}", wider.owner),
            };
            Some((*own, wider.rank, name))
        })
        .collect();
    named.sort_unstable();
    named.into_iter().map(|(own, _, name)| (own, name))
}
