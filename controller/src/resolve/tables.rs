//! Ports, listeners and route tables of one Gateway's snapshot.
//!
//! A request belongs to the listener with the most specific hostname that covers it, and to no other
//! (listener isolation). All HTTP listeners of a port share a table in which each hostname of a listener is a
//! virtual host, with or without routes. An HTTPS listener, which the SNI picks, has its own table; requests
//! there that belong to another HTTPS listener of the port are answered with 421.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use sesame_proto::schema;
use sesame_proto::schema::route::Action as RouteAction;

use super::attach::{Attachment, Host};
use super::hostnames::Hostname;
use super::l4_routes;
use super::listeners::ListenerState;
use super::matches::Conditions;
use super::precedence::Order;
use super::routes::{CheckedRoute, Routes};
use super::rules::{Action, CheckedRule, Rules};
use super::shadowed::{self, Shadowed};

/// What a Gateway serves.
pub(super) struct Served {
    pub(super) ports: Vec<schema::Port>,
    pub(super) route_tables: Vec<schema::RouteTable>,
}

/// Builds all ports and route tables of the listeners that are served.
///
/// Notes in `shadowed` which matches requests can reach, and which not.
pub(super) fn build(
    listeners: &[&ListenerState<'_>],
    routes: &Routes,
    shadowed: &mut Shadowed,
) -> Served {
    let mut by_port: BTreeMap<(i32, u16), Vec<Placed<'_>>> = BTreeMap::new();
    for state in listeners {
        let (Some(protocol), Some(port), Some(hostname)) =
            (state.protocol, state.port, &state.hostname)
        else {
            continue;
        };
        let transport = match protocol {
            schema::Protocol::RawUdp => schema::Transport::Udp,
            _ => schema::Transport::Tcp,
        };
        by_port
            .entry((transport.into(), port))
            .or_default()
            .push(Placed {
                state,
                protocol,
                port,
                hostname,
            });
    }
    let mut served = Served {
        ports: Vec::new(),
        route_tables: Vec::new(),
    };
    for ((transport, port), mut placed) in by_port {
        placed.sort_by_key(|placed| {
            (
                Reverse(placed.hostname.specificity()),
                placed.state.provenance.as_str(),
            )
        });
        let of = |protocols: &[schema::Protocol]| -> Vec<&Placed<'_>> {
            placed
                .iter()
                .filter(|placed| protocols.contains(&placed.protocol))
                .collect()
        };
        let by_server_name = of(&[schema::Protocol::Https, schema::Protocol::Tls]);
        let owners = Owners::new(&by_server_name);
        served.ports.push(schema::Port {
            transport,
            port: port.into(),
            listeners: placed
                .iter()
                .map(|placed| placed.to_schema(&owners, routes))
                .collect(),
        });

        let http = of(&[schema::Protocol::Http]);
        if !http.is_empty() {
            let owners = Owners::new(&http);
            let mut hosts = VirtualHosts::default();
            for listener in &http {
                hosts.add_listener(listener, &owners, routes, shadowed);
            }
            served.route_tables.push(hosts.into_table(http_table(port)));
        }
        let https = of(&[schema::Protocol::Https]);
        let owners = Owners::new(&https);
        for listener in &https {
            let mut hosts = VirtualHosts::default();
            hosts.add_listener(listener, &owners, routes, shadowed);
            hosts.add_misdirected(listener, &https);
            served
                .route_tables
                .push(hosts.into_table(listener.https_table()));
        }
    }
    served.route_tables.sort_by(|a, b| a.name.cmp(&b.name));
    served
}

fn http_table(port: u16) -> String {
    format!("http/{port}")
}

/// A listener with everything that serving needs.
struct Placed<'a> {
    state: &'a ListenerState<'a>,
    protocol: schema::Protocol,
    port: u16,
    hostname: &'a Hostname,
}

impl Placed<'_> {
    fn https_table(&self) -> String {
        format!("https/{}/{}", self.port, self.state.provenance)
    }

    fn scheme(&self) -> &'static str {
        if self.protocol == schema::Protocol::Https {
            "https"
        } else {
            "http"
        }
    }

    /// `owners` are the listeners of the port that server names are shared out among.
    fn to_schema(&self, owners: &Owners<'_>, routes: &Routes) -> schema::Listener {
        let attachments = &self.state.attachments;
        schema::Listener {
            name: self.state.provenance.clone(),
            protocol: self.protocol.into(),
            hostname: self.hostname.as_str().to_owned(),
            route_table: match self.protocol {
                schema::Protocol::Http => http_table(self.port),
                schema::Protocol::Https => self.https_table(),
                _ => String::new(),
            },
            tls: self.state.tls.clone(),
            l4_routes: match self.protocol {
                schema::Protocol::Http | schema::Protocol::Https => Vec::new(),
                schema::Protocol::Tls => {
                    let terminates = self.state.tls.is_some();
                    l4_routes::by_server_name(attachments, routes, terminates, |domain| {
                        owners.owns(self.hostname, domain)
                    })
                }
                schema::Protocol::RawTcp | schema::Protocol::RawUdp => {
                    l4_routes::oldest(attachments, routes)
                }
            },
        }
    }
}

/// The hostnames of the listeners that requests are shared out among.
struct Owners<'a>(HashSet<&'a str>);

impl<'a> Owners<'a> {
    fn new(listeners: &[&Placed<'a>]) -> Self {
        Self(
            listeners
                .iter()
                .map(|listener| listener.hostname.key())
                .collect(),
        )
    }

    /// Whether all hosts of `domain` that no narrower listener has belong to `listener`.
    fn owns(&self, listener: &Hostname, domain: &Hostname) -> bool {
        // Alone it has all that it covers.
        self.0.len() == 1
            || domain.covering_keys().find(|key| self.0.contains(key)) == Some(listener.key())
    }
}

/// The virtual hosts of one table so far, in the table's order.
#[derive(Default)]
struct VirtualHosts(BTreeMap<DomainOrder, schema::VirtualHost>);

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
    fn add_listener(
        &mut self,
        listener: &Placed<'_>,
        owners: &Owners<'_>,
        routes: &Routes,
        shadowed: &mut Shadowed,
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
            let reachable = shadowed::reachable(candidates, shadowed);
            let routes = reachable
                .iter()
                .map(|(order, candidate)| candidate.to_schema(order.match_, listener))
                .collect();
            self.insert(domain, routes);
        }
    }

    /// Adds 421 for what belongs to other HTTPS listeners of the port, unless a wider domain says so already.
    fn add_misdirected(&mut self, listener: &Placed<'_>, all: &[&Placed<'_>]) {
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

    fn into_table(self, name: String) -> schema::RouteTable {
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
pub(super) struct Candidate<'a> {
    route: &'a CheckedRoute,
    rule: &'a CheckedRule,
    pub(super) conditions: &'a Conditions,
}

impl Candidate<'_> {
    fn to_schema(self, match_: usize, listener: &Placed<'_>) -> schema::Route {
        let Conditions {
            path,
            method,
            headers,
            query_params,
            grpc,
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

/// Adds the names of the Backends that a virtual host sends to.
pub(super) fn backends_of<'h>(host: &'h schema::VirtualHost, names: &mut impl Extend<&'h str>) {
    for route in &host.routes {
        if let Some(RouteAction::Forward(forward)) = &route.action {
            let weighted = forward
                .backends
                .iter()
                .map(|backend| backend.backend.as_str());
            let mirrored = forward.mirrors.iter().map(|mirror| mirror.backend.as_str());
            names.extend(weighted.chain(mirrored).filter(|name| !name.is_empty()));
        }
    }
}
