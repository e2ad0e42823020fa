//! Finds matches whose requests get different responses from two snapshots.
//!
//! Builds a matching request for each changed match and compares both responses, so unreachable
//! matches are not reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sesame_proto::schema::{L4Route, Listener, Port, Protocol, Route, Snapshot, VirtualHost};

use super::Explainer;
use super::access;
use super::answer::RETRIES;
use super::describe;
use super::hosts;
use super::outcome::{ExplainedBackend, ExplainedOutcome, Explanation};
use super::request::ExplainRequest;
use super::witness::witness;

/// A match whose requests get a different response.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedAnswer {
    /// `HTTPRoute/namespace/name/rules/0/matches/0`, or the name of a layer 4 route.
    pub route: String,
    /// `Gateway/namespace/name`.
    pub gateway: String,
    /// `Gateway/namespace/name/listeners/http`.
    pub listener: String,
    /// Host or server names. `*` stands for all other hosts.
    pub host: String,
    /// The match as text.
    pub condition: String,
    /// Example request. `None` for connections, or if no example was found.
    pub request: Option<String>,
    /// The old response.
    pub before: String,
    /// The new response.
    pub after: String,
    /// The match that got the requests before, if it remains in the new snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<String>,
}

/// Formats the changes, and names each match once. `plain` must remove control characters that
/// terminals would interpret.
pub fn changes_text(changes: &[ChangedAnswer], plain: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut last = None;
    // Writing to a String cannot fail.
    for change in changes {
        let ChangedAnswer {
            route,
            gateway: _,
            listener,
            host,
            condition,
            request,
            before,
            after,
            taken_from,
        } = change;
        if last != Some(route) {
            let _ = writeln!(text, "{} ({})", plain(route), plain(condition));
            last = Some(route);
        }
        let _ = writeln!(text, "  at {listener}, {}", describe::host(host));
        if let Some(request) = request {
            let _ = writeln!(text, "    for example {}", plain(request));
        }
        let _ = writeln!(text, "    - {}\n    + {}", plain(before), plain(after));
        if let Some(other) = taken_from {
            let _ = writeln!(text, "    taken over from {}", plain(other));
        }
    }
    if text.is_empty() {
        text.push_str("no request is handled differently\n");
    }
    text
}

/// Returns the changes, sorted by match. `old` is `None` for a created Gateway, and `new` is `None`
/// for a deleted Gateway.
pub fn changed_answers(old: Option<&Snapshot>, new: Option<&Snapshot>) -> Vec<ChangedAnswer> {
    let nothing = Snapshot {
        gateway: old.or(new).map(|it| it.gateway.clone()).unwrap_or_default(),
        ..Snapshot::default()
    };
    let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
    let mut comparison = Comparison {
        old: Explainer::new(old),
        new: Explainer::new(new),
        changed: BTreeSet::new(),
        kept: names(new),
    };
    for (snapshot, other) in [(old, new), (new, old)] {
        for port in &snapshot.ports {
            for listener in &port.listeners {
                comparison.requests(snapshot, other, port, listener);
            }
        }
    }
    comparison.connections(old, new);
    comparison.changed.into_iter().collect()
}

struct Comparison<'s> {
    old: Explainer<'s>,
    new: Explainer<'s>,
    changed: BTreeSet<ChangedAnswer>,
    /// Names of the matches in the new snapshot.
    kept: BTreeSet<String>,
}

impl Comparison<'_> {
    fn requests(
        &mut self,
        snapshot: &Snapshot,
        other: &Snapshot,
        port: &Port,
        listener: &Listener,
    ) {
        let there = other.ports.iter().flat_map(|port| &port.listeners);
        let same_listener = there.into_iter().any(|it| it == listener);
        for host in hosts_of(snapshot, port, listener) {
            let counterpart = find(other, &listener.route_table, &host.domain);
            if same_listener && counterpart == Some(host) {
                continue;
            }
            let known: BTreeMap<&str, &Route> = counterpart
                .map_or(&[][..], |it| it.routes.as_slice())
                .iter()
                .map(|route| (route.name.as_str(), route))
                .collect();
            for route in &host.routes {
                if !same_listener || known.get(route.name.as_str()) != Some(&route) {
                    self.request(snapshot, port, listener, &host.domain, route);
                }
            }
        }
    }

    fn request(
        &mut self,
        snapshot: &Snapshot,
        port: &Port,
        listener: &Listener,
        domain: &str,
        route: &Route,
    ) {
        let mut answer = ChangedAnswer {
            route: route.name.clone(),
            gateway: snapshot.gateway.clone(),
            listener: listener.name.clone(),
            host: domain.to_owned(),
            condition: describe::condition(route),
            request: None,
            before: "not known".to_owned(),
            after: "unknown: found no request that matches its expressions".to_owned(),
            taken_from: None,
        };
        if let Some(request) = witness(port, listener, domain, route) {
            let before = self.old.explain_in_full(&request);
            let after = self.new.explain_in_full(&request);
            answer.before = in_words(&before);
            answer.after = in_words(&after);
            answer.request = Some(request.to_string());
            answer.taken_from = self.taken_from(&before, &after);
        }
        if answer.before != answer.after {
            self.changed.insert(answer);
        }
    }

    /// Returns the old match of the request if another match gets the request, but the old one
    /// remains.
    fn taken_from(&self, before: &Explanation, after: &Explanation) -> Option<String> {
        let (old, new) = (before.route.as_ref()?, after.route.as_ref()?);
        let is_taken = old.name != new.name && self.kept.contains(&old.name);
        is_taken.then(|| old.name.clone())
    }

    fn connections(&mut self, old: &Snapshot, new: &Snapshot) {
        let (before, after) = (connections_of(old), connections_of(new));
        let places: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        for place in places {
            let (from, to) = (before.get(place), after.get(place));
            if from == to {
                continue;
            }
            let describe = |found: Option<&&L4Route>| match found {
                None => "closed".to_owned(),
                Some(route) if !route.refused_by.is_empty() => {
                    format!("closed, because {} is invalid", route.refused_by.join(", "))
                }
                Some(route) => {
                    let backends = route.backends.iter();
                    let backends =
                        backends.map(|it| format!("{} × {}", it.weight, named(&it.backend)));
                    let backends = backends.collect::<Vec<_>>().join(", ");
                    let filters = access::of_connections(&route.address_filters).into_iter();
                    let filters = filters.map(|it| format!("; {}: {}", it.filter, it.effect));
                    backends + &filters.collect::<String>()
                }
            };
            let hostnames = to.or(from).map(|it| it.hostnames.join(" "));
            let (listener, route) = *place;
            self.changed.insert(ChangedAnswer {
                route: route.to_owned(),
                gateway: new.gateway.clone(),
                listener: listener.to_owned(),
                host: hostnames.unwrap_or_default(),
                condition: "every connection".to_owned(),
                request: None,
                before: describe(from),
                after: describe(to),
                taken_from: None,
            });
        }
    }
}

/// Returns a request for each match of a snapshot for which an example is found.
pub fn witnesses(snapshot: &Snapshot) -> Vec<ExplainRequest> {
    let listeners = snapshot
        .ports
        .iter()
        .flat_map(|port| port.listeners.iter().map(move |listener| (port, listener)));
    let matches = listeners.flat_map(|(port, listener)| {
        let hosts = hosts_of(snapshot, port, listener);
        let routes = hosts.flat_map(|host| host.routes.iter().map(move |route| (host, route)));
        routes.filter_map(move |(host, route)| witness(port, listener, &host.domain, route))
    });
    matches.collect()
}

/// In a shared route table, a virtual host belongs to the most specific listener that covers it.
fn hosts_of<'s>(
    snapshot: &'s Snapshot,
    port: &'s Port,
    listener: &'s Listener,
) -> impl Iterator<Item = &'s VirtualHost> {
    let requests = matches!(listener.protocol(), Protocol::Http | Protocol::Https);
    let tables = snapshot.route_tables.iter();
    let tables = tables.filter(move |it| requests && it.name == listener.route_table);
    tables
        .flat_map(|table| &table.virtual_hosts)
        .filter(move |host| {
            hosts::owner(port, &listener.route_table, &host.domain) == Some(listener)
        })
}

fn names(snapshot: &Snapshot) -> BTreeSet<String> {
    let tables = snapshot.route_tables.iter();
    let hosts = tables.flat_map(|table| &table.virtual_hosts);
    let routes = hosts.flat_map(|host| &host.routes);
    routes.map(|route| route.name.clone()).collect()
}

fn find<'s>(snapshot: &'s Snapshot, table: &str, domain: &str) -> Option<&'s VirtualHost> {
    let table = snapshot.route_tables.iter().find(|it| it.name == table)?;
    table.virtual_hosts.iter().find(|it| it.domain == domain)
}

fn connections_of(snapshot: &Snapshot) -> BTreeMap<(&str, &str), &L4Route> {
    let listeners = snapshot.ports.iter().flat_map(|port| &port.listeners);
    listeners
        .flat_map(|listener| {
            let routes = listener.l4_routes.iter();
            routes.map(|route| ((listener.name.as_str(), route.name.as_str()), route))
        })
        .collect()
}

/// Describes the outcome without the parts that depend on the request.
pub(super) fn outline(explanation: &Explanation) -> String {
    let route = explanation.route.as_ref();
    let route = route.map_or("no route", |route| route.name.as_str());
    match &explanation.outcome {
        ExplainedOutcome::Refused { .. } => "no response".to_owned(),
        ExplainedOutcome::Answered { status, .. } => format!("{status} by {route}"),
        ExplainedOutcome::Redirected { status, .. } => format!("redirect {status} by {route}"),
        ExplainedOutcome::Forwarded { backends, .. } | ExplainedOutcome::Connected { backends } => {
            format!("{} by {route}", shares(backends))
        }
    }
}

/// Omits endpoints, because they change independently of routes.
pub(super) fn in_words(explanation: &Explanation) -> String {
    let route_suffix = explanation
        .route
        .as_ref()
        .map_or(String::new(), |route| format!(" by {}", route.name));
    let filters: Vec<String> = explanation
        .filters
        .iter()
        .map(|it| format!("; {}: {}", it.filter, it.effect))
        .collect();
    let filters = filters.concat();
    match &explanation.outcome {
        ExplainedOutcome::Refused { reason } => format!("no response: {reason}"),
        ExplainedOutcome::Answered { status, .. } => format!("{status}{route_suffix}"),
        ExplainedOutcome::Redirected {
            status, location, ..
        } => format!("{status} to {location}{route_suffix}{filters}"),
        ExplainedOutcome::Forwarded {
            backends,
            host,
            path,
            request_timeout_ms,
            backend_timeout_ms,
            retries,
        } => {
            let limit = |what: &str, time: &Option<u64>| {
                time.map_or(String::new(), |time| {
                    format!("; {what} {}", describe::duration(time))
                })
            };
            let retries = match retries.as_str() {
                RETRIES => String::new(),
                retries => format!("; retries: {retries}"),
            };
            format!(
                "{} (as {path} of {host}){route_suffix}{filters}{}{}{retries}",
                shares(backends),
                limit("timeout", request_timeout_ms),
                limit("timeout per attempt", backend_timeout_ms),
            )
        }
        ExplainedOutcome::Connected { backends } => format!("{}{route_suffix}", shares(backends)),
    }
}

fn shares(backends: &[ExplainedBackend]) -> String {
    let share = |it: &ExplainedBackend| {
        let name = named(it.backend.as_deref().unwrap_or_default());
        let tls = it.tls.as_ref().map_or(String::new(), |tls| {
            format!(" with TLS for {}", tls.names.join(" or "))
        });
        let refused = if it.refused.is_some() {
            " (rejected)"
        } else {
            ""
        };
        match backends {
            [_] => format!("{name}{tls}{refused}"),
            _ => format!("{} × {name}{tls}{refused}", it.weight),
        }
    };
    backends.iter().map(share).collect::<Vec<_>>().join(", ")
}

/// Removes the digest of the backend's settings.
fn named(backend: &str) -> String {
    match backend.splitn(5, '/').collect::<Vec<_>>().as_slice() {
        [""] => "an invalid reference".to_owned(),
        [kind, namespace, name, port, ..] => format!("{kind}/{namespace}/{name}/{port}"),
        _ => backend.to_owned(),
    }
}
