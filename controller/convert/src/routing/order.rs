//! Keeps the order of sources whose first matching rule wins.
//!
//! The Gateway API chooses the most specific match instead. If a later rule would win requests of
//! an earlier one, the earlier rule also gets a match for exactly these requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sesame_proto::expressions::quote;

use super::super::draft::ObjectId;
use super::super::values::{put, put_list};
use super::wider::wider_conflicts;
use super::{RouteDraft, RuleDraft};

/// End of an expression for the rest of a text prefix.
const REST: &str = "[^/].*";
const MAX_MATCHES: usize = 64;
/// Maximum number of matches of one host to which matches are added.
const MAX_TOTAL: usize = 512;
/// Maximum number of comparisons in all, and of one host. The rest counts as conflicts.
const MAX_COMPARISONS: usize = 50_000_000;
const MAX_HOST_COMPARISONS: usize = 2_000_000;

/// A rule and its place among all rules of the source.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct OrderedRule {
    pub(in super::super) place: usize,
    pub(in super::super) rule: RuleDraft,
}

/// The rules of an object for one host of one listener.
#[derive(Clone, Debug)]
pub(in super::super) struct HostUnit {
    pub(in super::super) owner: ObjectId,
    /// Empty for all hosts.
    pub(in super::super) host: String,
    pub(in super::super) parent: Value,
    pub(in super::super) rules: Vec<OrderedRule>,
}

/// Requests of the first object that might reach the second.
pub(in super::super) type OrderConflict = (ObjectId, ObjectId);

/// Adds matches so that earlier rules win. If `hosts_first` is false, the source compares rules of
/// wider hosts, too. Returns the conflicts that matches cannot resolve.
pub(in super::super) fn keep_order(
    units: &mut Vec<HostUnit>,
    hosts_first: bool,
) -> BTreeSet<OrderConflict> {
    let mut conflicts = BTreeSet::new();
    let mut groups: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (index, unit) in units.iter().enumerate() {
        groups
            .entry((listener_of(unit), unit.host.clone()))
            .or_default()
            .push(index);
    }
    let mut budget = MAX_COMPARISONS;
    if !hosts_first {
        wider_conflicts(units, &groups, &mut conflicts, &mut budget);
    }
    for group in groups.values() {
        let given = budget.min(MAX_HOST_COMPARISONS);
        budget -= given - order_group(units, group, &mut conflicts, given);
    }
    for unit in units.iter_mut() {
        unit.rules.retain(|it| !it.rule.matches.is_empty());
        unit.rules.sort_by_key(|it| it.place);
    }
    units.retain(|unit| !unit.rules.is_empty());
    conflicts
}

/// Returns the listener of a unit, with its namespace, so that units of all namespaces are compared.
fn listener_of(unit: &HostUnit) -> String {
    let mut parent = unit.parent.clone();
    if parent["namespace"].is_null() {
        parent["namespace"] = json!(unit.owner.namespace);
    }
    parent.to_string()
}

struct PlacedMatch {
    unit: usize,
    place: usize,
    matched: Value,
}

/// Takes the matches of a group, in the order of the source.
fn placed(units: &mut [HostUnit], group: &[usize]) -> Vec<PlacedMatch> {
    let mut list: Vec<PlacedMatch> = Vec::new();
    for &unit in group {
        for OrderedRule { place, rule } in &mut units[unit].rules {
            let matches = std::mem::take(&mut rule.matches).into_iter();
            list.extend(matches.map(|matched| PlacedMatch {
                unit,
                place: *place,
                matched,
            }));
        }
    }
    list.sort_by_key(|it| it.place);
    list
}

/// Returns the rest of the budget.
fn order_group(
    units: &mut [HostUnit],
    group: &[usize],
    conflicts: &mut BTreeSet<OrderConflict>,
    mut budget: usize,
) -> usize {
    let mut list = placed(units, group);
    // An added match may be removed because an even earlier rule covers it.
    let mut added: BTreeSet<(usize, String)> = BTreeSet::new();
    let mut later = 1;
    'later: while later < list.len() {
        let present = later;
        for earlier in 0..present {
            let (first, second) = (&list[earlier], &list[present]);
            if first.place == second.place {
                continue;
            }
            if budget == 0 {
                let owners = group.iter().map(|it| &units[*it].owner);
                conflicts.extend(owners.map(|it| (units[first.unit].owner.clone(), it.clone())));
                break 'later;
            }
            budget -= 1;
            let is_taken = || {
                let [own, other] = [second, first].map(|it| rank(&it.matched));
                own < other || own == other && first.unit != second.unit
            };
            let both = match overlap(&first.matched, &second.matched) {
                Overlap::None => continue,
                Overlap::Both(both) if both == second.matched => {
                    // The earlier rule gets all its requests.
                    list.remove(present);
                    continue 'later;
                }
                Overlap::Both(both) if is_taken() && list.len() < MAX_TOTAL => both,
                _ if is_taken() => {
                    let [first, second] = [first, second].map(|it| units[it.unit].owner.clone());
                    conflicts.insert((first, second));
                    continue;
                }
                _ => continue,
            };
            let is_known = list
                .iter()
                .any(|it| it.place == first.place && it.matched == both);
            budget = budget.saturating_sub(list.len());
            if !is_known && added.insert((first.place, both.to_string())) {
                let (unit, place, matched) = (first.unit, first.place, both);
                list.insert(
                    earlier + 1,
                    PlacedMatch {
                        unit,
                        place,
                        matched,
                    },
                );
                later = earlier + 1;
                continue 'later;
            }
        }
        later += 1;
    }
    for it in list {
        let mut rules = units[it.unit].rules.iter_mut();
        if let Some(known) = rules.find(|rule| rule.place == it.place) {
            known.rule.matches.push(it.matched);
        }
    }
    budget
}

/// Hosts, listeners and rules of one HTTPRoute.
type MergedUnit = (Vec<String>, Vec<Value>, Vec<RuleDraft>);

/// Merges the units of one object with the same rules.
fn merged(units: &[&HostUnit]) -> Vec<MergedUnit> {
    let mut by_host: Vec<(String, Vec<Value>, &[OrderedRule])> = Vec::new();
    for unit in units {
        let alike = by_host
            .iter_mut()
            .find(|(host, _, rules)| *host == unit.host && *rules == &unit.rules[..]);
        match alike {
            Some((_, parents, _)) if parents.contains(&unit.parent) => {}
            Some((_, parents, _)) => parents.push(unit.parent.clone()),
            None => by_host.push((unit.host.clone(), vec![unit.parent.clone()], &unit.rules)),
        }
    }
    let mut all: Vec<(Vec<String>, Vec<Value>, &[OrderedRule])> = Vec::new();
    for (host, parents, rules) in by_host {
        let alike = all.iter_mut().find(|(hosts, known, it)| {
            let exact = !host.is_empty() && !hosts.is_empty();
            exact && *known == parents && *it == rules
        });
        if let Some((hosts, ..)) = alike {
            hosts.push(host);
        } else {
            let own = Some(host).filter(|host| !host.is_empty());
            all.push((own.into_iter().collect(), parents, rules));
        }
    }
    let all = all.into_iter().map(|(hosts, parents, rules)| {
        let rules = rules.iter().flat_map(|it| split(&it.rule)).collect();
        (hosts, parents, rules)
    });
    all.collect()
}

/// Returns the HTTPRoutes for the units of one object. The first has the object's name, and others
/// also contain their host.
pub(in super::super) fn routes(name: &str, units: &[&HostUnit]) -> Vec<RouteDraft> {
    let mut routes: Vec<RouteDraft> = Vec::new();
    for (hostnames, parents, rules) in merged(units) {
        let host = hostnames.first().map_or("default", String::as_str);
        let number = routes.len() + 1;
        let own = match number {
            1 => name.to_owned(),
            number => super::suffixed(name, host, number),
        };
        let is_taken = routes.iter().any(|it| it.name == own);
        routes.push(RouteDraft {
            name: if is_taken {
                format!("{own}-{number}")
            } else {
                own
            },
            hostnames,
            parents,
            rules,
        });
    }
    routes
}

fn split(rule: &RuleDraft) -> Vec<RuleDraft> {
    let parts = rule.matches.chunks(MAX_MATCHES).map(|matches| RuleDraft {
        matches: matches.to_vec(),
        ..rule.clone()
    });
    parts.collect()
}

/// The requests that two matches have in common.
#[derive(Debug, PartialEq)]
pub(in super::super) enum Overlap {
    None,
    Both(Value),
    /// An expression might match requests of the other match.
    Unknown,
}

fn path_of(matched: &Value) -> (&str, &str) {
    let path = &matched["path"];
    let kind = path["type"].as_str().unwrap_or("PathPrefix");
    (kind, path["value"].as_str().unwrap_or("/"))
}

fn list<'v>(matched: &'v Value, name: &str) -> &'v [Value] {
    matched[name].as_array().map_or(&[], Vec::as_slice)
}

/// Lower ranks win, as in the Gateway API.
fn rank(matched: &Value) -> impl Ord + use<> {
    let (kind, path) = path_of(matched);
    let number = |name| Reverse(list(matched, name).len());
    (
        kind != "Exact",
        Reverse(path.len()),
        kind == "RegularExpression",
        matched["method"].is_null(),
        number("headers"),
        number("queryParams"),
    )
}

/// Returns true if the prefix matches the path, or all paths below a longer prefix.
pub(in super::super) fn covers(prefix: &str, path: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the expression for paths that a text prefix matches, but a prefix of elements does not.
pub(in super::super) fn rest_of_text(prefix: &str) -> String {
    format!("{}{REST}", quote(prefix))
}

/// Returns the prefix of [`rest_of_text`].
fn text_of_rest(pattern: &str) -> Option<String> {
    let prefix = pattern.strip_suffix(REST)?.replace('\\', "");
    (rest_of_text(&prefix) == pattern).then_some(prefix)
}

/// Compares the rest of a text prefix with another path. Returns true if it contains the path, false
/// if the path contains it, and `None` if they are disjoint.
fn contains_other(prefix: &str, (kind, path): (&str, &str)) -> Option<bool> {
    match path.strip_prefix(prefix) {
        Some(after) => (!after.is_empty() && !after.starts_with('/')).then_some(true),
        None => (kind == "PathPrefix" && covers(path, prefix)).then_some(false),
    }
}

/// Returns the text that every match of an expression starts with.
fn literal(pattern: &str) -> &str {
    let end = pattern.find(|c: char| r"\.[](){}*+?|^$".contains(c));
    let Some(end) = end.filter(|_| !pattern.contains('|')) else {
        return if pattern.contains('|') { "" } else { pattern };
    };
    let (start, rest) = pattern.split_at(end);
    match rest.chars().next() {
        // The last letter may be missing.
        Some('*' | '?' | '{') => {
            let mut letters = start.chars();
            letters.next_back();
            letters.as_str()
        }
        _ => start,
    }
}

/// Returns the intersection of two matches. It equals the second if the first covers it.
pub(in super::super) fn overlap(first: &Value, second: &Value) -> Overlap {
    let (a, b) = (path_of(first), path_of(second));
    let mut is_unknown = false;
    let path = match (a, b) {
        (a, b) if a == b => b,
        (("PathPrefix", prefix), ("PathPrefix" | "Exact", path)) if covers(prefix, path) => b,
        (("PathPrefix" | "Exact", path), ("PathPrefix", prefix)) if covers(prefix, path) => a,
        (("PathPrefix", "/"), _) => b,
        (_, ("PathPrefix", "/")) => a,
        (regex @ (_, pattern), other) | (other, regex @ (_, pattern))
            if other.0 != "RegularExpression" && text_of_rest(pattern).is_some() =>
        {
            let prefix = text_of_rest(pattern).unwrap_or_default();
            match contains_other(&prefix, other) {
                Some(true) => other,
                Some(false) => regex,
                None => return Overlap::None,
            }
        }
        (("RegularExpression", pattern), (_, path))
        | ((_, path), ("RegularExpression", pattern)) => {
            let fixed = literal(pattern);
            if !fixed.starts_with(path) && !path.starts_with(fixed) {
                return Overlap::None;
            }
            is_unknown = true;
            b
        }
        _ => return Overlap::None,
    };
    let method = match (&first["method"], &second["method"]) {
        (a, b) if a.is_null() || a == b => b,
        (a, b) if b.is_null() => a,
        _ => return Overlap::None,
    };
    let mut both = Map::new();
    both.insert("path".to_owned(), json!({"type": path.0, "value": path.1}));
    put(
        &mut both,
        "method",
        Some(method.clone()).filter(|it| !it.is_null()),
    );
    for name in ["headers", "queryParams"] {
        let mut values = list(second, name).to_vec();
        for value in list(first, name) {
            let is_same = |it: &&Value| {
                let name = |it: &Value| it["name"].as_str().map(str::to_ascii_lowercase);
                name(it) == name(value)
            };
            match list(second, name).iter().find(is_same) {
                Some(other) if other["value"] == value["value"] => {}
                Some(other) if other["type"] == "Exact" && value["type"] == "Exact" => {
                    return Overlap::None;
                }
                Some(_) if value["value"] == ".*" => {}
                Some(_) => is_unknown = true,
                None => values.push(value.clone()),
            }
        }
        put_list(&mut both, name, values);
    }
    if is_unknown {
        Overlap::Unknown
    } else {
        Overlap::Both(both.into())
    }
}
