//! Keeps HTTPRoutes within the limits of their CRD.

use super::{RouteDraft, RuleDraft, numbered};

const MAX_RULES: usize = 16;
const MAX_MATCHES: usize = 64;
const MAX_HOSTNAMES: usize = 16;

/// Merges neighbours that differ only in their matches, and splits routes with too many rules. Other
/// rules keep their place, because the first of several equal matches wins.
pub(super) fn within_limits(route: RouteDraft) -> Vec<RouteDraft> {
    let mut merged: Vec<RuleDraft> = Vec::new();
    for mut rule in route.rules {
        let alike = merged.last_mut().filter(|it| {
            let fits = it.matches.len() + rule.matches.len() <= MAX_MATCHES;
            let alike = it.fields == rule.fields && it.access == rule.access;
            fits && alike && it.traffic == rule.traffic
        });
        match alike {
            Some(alike) => alike.matches.append(&mut rule.matches),
            None => merged.push(rule),
        }
    }
    let mut parts: Vec<Vec<RuleDraft>> = Vec::new();
    for rule in merged {
        let fits = |part: &&mut Vec<RuleDraft>| {
            let matches: usize = part.iter().map(|it| it.matches.len()).sum();
            part.len() < MAX_RULES && matches + rule.matches.len() <= 2 * MAX_MATCHES
        };
        match parts.last_mut().filter(fits) {
            Some(part) => part.push(rule),
            None => parts.push(vec![rule]),
        }
    }
    let mut hosts: Vec<Vec<String>> = route
        .hostnames
        .chunks(MAX_HOSTNAMES)
        .map(<[String]>::to_vec)
        .collect();
    if hosts.is_empty() {
        hosts.push(Vec::new());
    }
    let parts = hosts.into_iter().flat_map(|hosts| {
        parts
            .iter()
            .map(move |rules| (hosts.clone(), rules.clone()))
    });
    let parts: Vec<_> = parts.collect();
    let count = parts.len();
    let parts = parts
        .into_iter()
        .enumerate()
        .map(|(index, (hostnames, rules))| RouteDraft {
            name: numbered(&route.name, index, count),
            hostnames,
            parents: route.parents.clone(),
            rules,
        });
    parts.collect()
}
