//! The virtual hosts of one route table: which routes each has, and in which order.
//!
//! Every hostname of a listener and every hostname of its routes that no narrower listener has is one. What it may cost
//! to look at its expressions is bounded.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use sesame_proto::expressions::MOST_OF_VIRTUAL_HOST;
use sesame_proto::schema;
use sesame_proto::schema::route::Action as RouteAction;

use super::displaced::Displaced;
use super::shadowed::{self, Shadowed};
use super::{Owners, Placed};
use crate::resolve::parents::attach::{Attachment, Host};
use crate::resolve::routes::matches::Conditions;
use crate::resolve::routes::precedence::Order;
use crate::resolve::routes::rules::{Action, CheckedRule, Rules};
use crate::resolve::routes::{CheckedRoute, Routes};
use crate::resolve::syntax::hostnames::Hostname;
use crate::status::Reason;

/// The virtual hosts of one table so far, in the table's order.
#[derive(Default)]
pub(crate) struct VirtualHosts(BTreeMap<DomainOrder, schema::VirtualHost>);

/// Exact domains by name, then wildcards from the most specific, `*` last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum DomainOrder {
    Exact(String),
    Wildcard(Reverse<usize>, String),
    Any,
}

impl DomainOrder {
    fn of(domain: &Hostname) -> Self {
        let text = domain.as_str();
        if domain.is_exact() {
            Self::Exact(text.to_owned())
        } else if text.is_empty() {
            Self::Any
        } else {
            Self::Wildcard(Reverse(text.split('.').count()), text.to_owned())
        }
    }
}

impl VirtualHosts {
    fn insert(&mut self, domain: &Hostname, routes: Vec<schema::Route>) {
        let host = schema::VirtualHost {
            domain: domain.domain().to_owned(),
            routes,
        };
        self.0.insert(DomainOrder::of(domain), host);
    }

    /// Adds the listener's own hostname and every domain of its routes that belongs to it.
    pub(crate) fn add_listener(
        &mut self,
        listener: &Placed<'_>,
        owners: &Owners<'_>,
        routes: &Routes,
        (shadowed, displaced): (&mut Shadowed, &mut Displaced),
    ) {
        let mut by_domain: HashMap<&str, Vec<(&Host, &Attachment)>> = HashMap::new();
        let mut domains: BTreeMap<&str, &Hostname> = BTreeMap::new();
        domains.insert(listener.hostname.key(), listener.hostname);
        for attachment in &listener.state.attachments {
            for host in &attachment.hosts {
                by_domain
                    .entry(host.domain.key())
                    .or_default()
                    .push((host, attachment));
                domains.insert(host.domain.key(), &host.domain);
            }
        }
        for domain in domains.into_values() {
            if !owners.owns(listener.hostname, domain) {
                continue;
            }
            let covering = domain
                .covering_keys()
                .filter_map(|key| by_domain.get(key))
                .flatten();
            let mut candidates = Vec::new();
            for (host, attachment) in covering {
                let Some(route) = routes.get(attachment.route) else {
                    continue;
                };
                let Rules::Requests(rules) = &route.rules else {
                    continue;
                };
                for rule in rules {
                    for (i, conditions) in rule.matches.iter().enumerate() {
                        let order = Order {
                            hostname: Reverse(host.rank),
                            rank: conditions.rank(),
                            route: attachment.route,
                            rule: rule.index,
                            match_: i,
                        };
                        candidates.push((
                            order,
                            Candidate {
                                route,
                                rule,
                                conditions,
                            },
                        ));
                    }
                }
            }
            candidates.sort_unstable_by_key(|(order, _)| *order);
            let unaffordable = unaffordable(&candidates);
            if !unaffordable.is_empty() {
                candidates.retain(|(order, _)| !unaffordable.contains_key(&order.route));
                let (port, attachments) = (listener.port, &listener.state.attachments);
                for (route, (own, before)) in unaffordable {
                    let at = attachments.iter().find(|it| it.route == route);
                    displaced.add(
                        route,
                        at.map(|it| it.parent),
                        Reason::TooManyExpressions,
                        format!(
                            "none of its matches is served for hostname {:?} on port {port}: its regular expressions \
                             have {own} instructions once compiled, those of older routes there {before}; together at \
                             most {MOST_OF_VIRTUAL_HOST} are allowed",
                            domain.domain()
                        ),
                    );
                }
            }
            let reachable = shadowed::reachable(candidates, shadowed);
            let routes = reachable
                .iter()
                .map(|(order, candidate)| candidate.to_schema(order.match_, listener))
                .collect();
            self.insert(domain, routes);
        }
    }

    /// Adds 421 for what belongs to other HTTPS and TLS listeners of the port, unless a wider domain says so already.
    pub(crate) fn add_misdirected(&mut self, listener: &Placed<'_>, all: &[&Placed<'_>]) {
        let mut nearest: HashMap<String, bool> = self
            .0
            .values()
            .map(|host| (domain_key(&host.domain).to_owned(), false))
            .collect();
        // From the least specific, so that what covers a domain is there before it.
        for other in all.iter().rev() {
            let domain = other.hostname;
            if domain == listener.hostname {
                continue;
            }
            let covered = domain
                .covering_keys()
                .find_map(|key| nearest.get(key))
                .copied();
            if covered == Some(true) {
                continue;
            }
            nearest.insert(domain.key().to_owned(), true);
            self.insert(domain, vec![misdirected(other)]);
        }
    }

    pub(crate) fn into_table(self, name: String) -> schema::RouteTable {
        schema::RouteTable {
            name,
            virtual_hosts: self.0.into_values().collect(),
        }
    }
}

/// [`Hostname::key`] of a virtual host's domain.
fn domain_key(domain: &str) -> &str {
    domain.strip_prefix('*').unwrap_or(domain)
}

/// 421 for what belongs to another listener.
fn misdirected(other: &Placed<'_>) -> schema::Route {
    schema::Route {
        name: other.state.provenance.clone(),
        path: Some(schema::PathMatch {
            kind: Some(Conditions::all().path),
        }),
        action: Some(RouteAction::DirectResponse(schema::DirectResponse {
            status: 421,
        })),
        ..schema::Route::default()
    }
}

/// One match of one rule of one route.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    route: &'a CheckedRoute,
    rule: &'a CheckedRule,
    pub(crate) conditions: &'a Conditions,
}

impl Candidate<'_> {
    fn to_schema(self, match_: usize, listener: &Placed<'_>) -> schema::Route {
        let Conditions {
            path,
            method,
            headers,
            query_params,
            grpc,
            instructions: _,
        } = self.conditions;
        let CheckedRule {
            index,
            matches: _,
            action,
            request_headers,
            response_headers,
            cors,
        } = self.rule;
        schema::Route {
            name: format!("{}/rules/{index}/matches/{match_}", self.route.provenance),
            path: Some(schema::PathMatch {
                kind: Some(path.clone()),
            }),
            method: method.clone(),
            headers: headers.clone(),
            query_params: query_params.clone(),
            action: Some(match action {
                Action::Forward(forward) => RouteAction::Forward(forward.clone()),
                Action::Redirect(redirect) => {
                    RouteAction::Redirect(redirect.on(listener.scheme(), listener.port))
                }
                Action::Respond(status) => {
                    RouteAction::DirectResponse(schema::DirectResponse { status: *status })
                }
            }),
            request_headers: request_headers.clone(),
            response_headers: response_headers.clone(),
            cors: cors.clone(),
            grpc: grpc.is_some(),
        }
    }
}

/// The routes whose expressions have no room in a virtual host beside those of older ones, with what they cost and what
/// those cost that have room. A route is left out as a whole: without some of its matches it would be another route.
fn unaffordable(candidates: &[(Order, Candidate<'_>)]) -> BTreeMap<usize, (u64, u64)> {
    let mut costs: BTreeMap<usize, u64> = BTreeMap::new();
    // A route may have a match for two hostnames that cover the domain: it is there once.
    let mut seen: HashSet<(usize, usize, usize)> = HashSet::new();
    for (
        order,
        Candidate {
            rule, conditions, ..
        },
    ) in candidates
    {
        if conditions.instructions > 0 && seen.insert((order.route, order.rule, order.match_)) {
            let cost = rule.looks().saturating_mul(conditions.instructions);
            let of_route = costs.entry(order.route).or_default();
            *of_route = of_route.saturating_add(cost);
        }
    }
    let mut total = 0_u64;
    costs.retain(|_, cost| {
        let room = total.saturating_add(*cost) <= MOST_OF_VIRTUAL_HOST;
        if room {
            total = total.saturating_add(*cost);
        }
        !room
    });
    costs
        .into_iter()
        .map(|(route, cost)| (route, (cost, total)))
        .collect()
}
