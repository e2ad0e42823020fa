//! Builds a route table's virtual hosts: one for each listener's hostname, and one for each route
//! hostname that the listener owns.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use sesame_proto::expressions::MAX_PER_VIRTUAL_HOST;
use sesame_proto::refusal;
use sesame_proto::schema;
use sesame_proto::schema::route::Action as RouteAction;

use super::Findings;
use super::candidates::{MatchCandidate, unaffordable};
use super::displaced::Displaced;
use super::placed::{HostnameOwners, PlacedListener};
use super::room::{ExcludedRoutes, Hosted, Room, WithHosts};
use super::shadowed;
use crate::routes::Routes;
use crate::routes::matches::RouteMatch;
use crate::routes::precedence::{MatchPlace, Order};
use crate::routes::rules::Rules;
use crate::syntax::hostnames::Hostname;
use sesame_kinds::status::Reason;

/// Sorted as in the route table.
#[derive(Default)]
pub(crate) struct VirtualHosts(BTreeMap<DomainOrder, schema::VirtualHost>);

/// Exact domains by name, then wildcards, most specific first, then `*`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
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
        self.insert_filtered(domain, routes, Vec::new(), None);
    }

    fn insert_filtered(
        &mut self,
        domain: &Hostname,
        routes: Vec<schema::Route>,
        external_auth: Vec<schema::ExternalAuth>,
        filters: Option<schema::RequestFilters>,
    ) {
        let host = schema::VirtualHost {
            domain: domain.domain().to_owned(),
            routes,
            external_auth,
            filters,
        };
        self.0.insert(DomainOrder::of(domain), host);
    }

    /// Adds virtual hosts for the listener's hostname and for route hostnames that it owns.
    pub(crate) fn add_listener(
        &mut self,
        (listener, hosts): &WithHosts<'_, '_>,
        room: &Room,
        routes: &Routes<'_>,
        findings: &mut Findings,
    ) {
        let filters = listener.listener.traffic.filters.to_schema(None);
        for domain in hosts.domains() {
            if listener.listener.refuses() {
                self.insert(domain, vec![answering(listener, refusal::HTTP)]);
                continue;
            }
            let covering: Vec<Hosted<'_>> = hosts.covering(domain).flatten().copied().collect();
            let left_out = room.left_out(&covering, listener, domain, routes);
            for (route, message) in &left_out {
                let at = listener.attachments.iter().find(|it| it.route == *route);
                let parent = at.map(|it| it.parent);
                let (reason, message) = (Reason::TooLarge, message.clone());
                findings.displaced.add(*route, parent, reason, message);
            }
            let own = covering.iter().filter(|(host, _)| host.domain == *domain);
            if domain != listener.hostname && room.is_void(own, routes) {
                continue;
            }
            let mut candidates = candidates(&covering, routes, &left_out, room);
            refuse_unaffordable(&mut candidates, domain, listener, &mut findings.displaced);
            let reachable = shadowed::reachable(candidates, &mut findings.shadowed);
            let routes = reachable
                .iter()
                .map(|(order, candidate)| candidate.to_schema(order.place, listener))
                .collect();
            self.insert_filtered(domain, routes, listener.external_auth(), filters.clone());
        }
    }

    /// Adds a copy of the listener's own hostname, for the fallback listener. The listener's other
    /// hosts belong to objects that have not opted in, so they get 421.
    pub(crate) fn add_member(&mut self, hosts: &Self, listener: &PlacedListener<'_>) {
        for (order, host) in &hosts.0 {
            let copy = if host.domain == listener.hostname.domain() {
                host.clone()
            } else {
                schema::VirtualHost {
                    domain: host.domain.clone(),
                    routes: vec![misdirected(listener)],
                    ..schema::VirtualHost::default()
                }
            };
            self.0.insert(order.clone(), copy);
        }
    }

    pub(crate) fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Adds 421 responses for the hostnames of other HTTPS and TLS listeners on the port. Skips
    /// hostnames below a domain that already responds with 421, and, in the fallback listener's
    /// table, hostnames that have opted in.
    pub(crate) fn add_misdirected(
        &mut self,
        listener: &PlacedListener<'_>,
        all: &[&PlacedListener<'_>],
    ) {
        let mut nearest: HashMap<String, bool> = self
            .0
            .values()
            .map(|host| {
                let key = host.domain.strip_prefix('*').unwrap_or(&host.domain);
                (key.to_owned(), false)
            })
            .collect();
        // Add wider domains first, so that the hostnames that they cover can be skipped.
        for other in all.iter().rev() {
            let domain = other.hostname;
            let is_own = nearest.get(domain.key()) == Some(&false);
            if is_own || domain == listener.hostname {
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

    /// Adds 421 responses only for names in the listener's certificates, because clients reuse
    /// connections only for those names. A wildcard name covers all hosts below its domain.
    pub(crate) fn add_misdirected_by_certificate(
        &mut self,
        listener: &PlacedListener<'_>,
        all: &[&PlacedListener<'_>],
        owners: &HostnameOwners<'_>,
    ) {
        for name in &listener.listener.certificate_names {
            let Ok(name) = Hostname::parse(name) else {
                continue;
            };
            if name.is_exact() {
                if owners.has_another(listener.hostname, &name) {
                    self.insert(&name, vec![misdirected(listener)]);
                }
            } else if listener.hostname.covers(&name) {
                let below = all.iter().filter(|other| {
                    name.covers(other.hostname) && other.hostname != listener.hostname
                });
                for other in below {
                    self.insert(other.hostname, vec![misdirected(other)]);
                }
            } else {
                self.insert(&name, vec![misdirected(listener)]);
            }
        }
    }

    pub(crate) fn into_table(self, name: String) -> schema::RouteTable {
        schema::RouteTable {
            name,
            virtual_hosts: self.0.into_values().collect(),
        }
    }
}

/// Returns the candidates sorted by precedence.
fn candidates<'a>(
    attachments: &[Hosted<'a>],
    routes: &'a Routes<'_>,
    left_out: &ExcludedRoutes,
    room: &'a Room,
) -> Vec<(Order<'a>, MatchCandidate<'a>)> {
    let mut candidates = Vec::new();
    for (host, attachment) in attachments {
        let Some(route) = routes.get(attachment.route) else {
            continue;
        };
        if left_out.contains_key(&attachment.route) {
            if let Some(rule) = route.rules.protecting() {
                let route_match = room.refused_by(route);
                let place = MatchPlace {
                    route: attachment.route,
                    rule: rule.index,
                    match_: rule.first,
                };
                let order = Order::of(route.object.kind, host.rank, route_match, 0, place);
                let candidate = MatchCandidate {
                    route,
                    rule,
                    route_match,
                    refuses: true,
                };
                candidates.push((order, candidate));
            }
            continue;
        }
        let Rules::Requests(rules) = &route.rules else {
            continue;
        };
        for (turn, rule) in rules.iter().enumerate() {
            for (i, route_match) in rule.matches.iter().enumerate() {
                let place = MatchPlace {
                    route: attachment.route,
                    rule: rule.index,
                    match_: rule.first.saturating_add(i),
                };
                let order = Order::of(route.object.kind, host.rank, route_match, turn, place);
                let candidate = MatchCandidate {
                    route,
                    rule,
                    route_match,
                    refuses: false,
                };
                candidates.push((order, candidate));
            }
        }
    }
    candidates.sort_unstable_by_key(|(order, _)| *order);
    candidates
}

/// Removes matches of routes whose expressions exceed the cost limit. Matches that might be
/// security-relevant stay, and reject their requests.
fn refuse_unaffordable(
    candidates: &mut Vec<(Order<'_>, MatchCandidate<'_>)>,
    domain: &Hostname,
    listener: &PlacedListener<'_>,
    displaced: &mut Displaced,
) {
    let unaffordable = unaffordable(candidates);
    if unaffordable.is_empty() {
        return;
    }
    candidates.retain_mut(|(order, candidate)| {
        candidate.refuses |= unaffordable.contains_key(&order.place.route);
        !candidate.refuses || candidate.rule.protects
    });
    let refuses = |route: usize| {
        let mut kept = candidates.iter();
        kept.any(|(order, candidate)| order.place.route == route && candidate.refuses)
    };
    let (port, attachments) = (listener.port, listener.attachments);
    for (route, (own, before)) in unaffordable {
        let at = attachments.iter().find(|it| it.route == route);
        displaced.add(
            route,
            at.map(|it| it.parent),
            Reason::TooManyExpressions,
            format!(
                "none of its matches is served for hostname {:?} on port {port}: its regular \
                expressions have {own} instructions once compiled, and older routes have \
                {before}; together at most {MAX_PER_VIRTUAL_HOST} are allowed{}",
                domain.domain(),
                if refuses(route) {
                    format!(
                        "; requests that its possibly security-relevant rules would match without \
                        them get {}",
                        refusal::HTTP
                    )
                } else {
                    String::new()
                }
            ),
        );
    }
}

fn misdirected(other: &PlacedListener<'_>) -> schema::Route {
    answering(other, refusal::MISDIRECTED)
}

fn answering(listener: &PlacedListener<'_>, status: u32) -> schema::Route {
    schema::Route {
        name: listener.listener.provenance.clone(),
        path: Some(schema::PathMatch {
            kind: Some(RouteMatch::all().path),
        }),
        action: Some(RouteAction::DirectResponse(schema::DirectResponse::new(
            status,
        ))),
        ..schema::Route::default()
    }
}
