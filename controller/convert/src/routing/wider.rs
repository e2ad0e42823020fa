//! Rules of wider hosts that a more specific host hides.

use std::collections::{BTreeMap, BTreeSet};

use super::covering;
use super::order::{HostUnit, OrderConflict, OrderedRule, Overlap, overlap};

/// Finds earlier rules of wider hosts, which lose requests to a more specific host. The wider host
/// may have another HTTPS listener, because the proxy chooses the listener first.
pub(super) fn wider_conflicts(
    units: &[HostUnit],
    groups: &BTreeMap<(String, String), Vec<usize>>,
    conflicts: &mut BTreeSet<OrderConflict>,
    budget: &mut usize,
) {
    let mut by_host: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for ((_, host), group) in groups {
        by_host.entry(host).or_default().extend(group);
    }
    for (host, group) in &by_host {
        let wider = covering(host).into_iter().skip(1);
        let wider: Vec<usize> = wider
            .filter_map(|host| by_host.get(host.as_str()))
            .flatten()
            .copied()
            .collect();
        for (&own, &other) in group
            .iter()
            .flat_map(|own| wider.iter().map(move |it| (own, it)))
        {
            let (own, other) = (&units[own], &units[other]);
            // A ListenerSet has HTTPS listeners only.
            let is_same_port = own.parent["kind"] == other.parent["kind"];
            if is_same_port && takes(own, other, budget) {
                conflicts.insert((other.owner.clone(), own.owner.clone()));
            }
        }
    }
}

/// Returns true if a unit might get requests of earlier rules of another one.
fn takes(own: &HostUnit, other: &HostUnit, budget: &mut usize) -> bool {
    own.rules.iter().any(|later| {
        let mut earlier = other.rules.iter();
        earlier.any(|earlier| {
            let count = earlier.rule.matches.len() * later.rule.matches.len();
            *budget = budget.saturating_sub(count);
            earlier.place < later.place && (*budget == 0 || overlaps(earlier, later))
        })
    })
}

fn overlaps(first: &OrderedRule, second: &OrderedRule) -> bool {
    first.rule.matches.iter().any(|a| {
        let mut others = second.rule.matches.iter();
        others.any(|b| !matches!(overlap(a, b), Overlap::None))
    })
}
