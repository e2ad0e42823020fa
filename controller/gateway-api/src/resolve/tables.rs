//! Ports, listeners and route tables of one Gateway's snapshot.
//!
//! A request belongs to the listener with the most specific hostname that covers it, and to no other
//! (listener isolation). All HTTP listeners of a port share a table in which each hostname of a listener is a
//! virtual host, with or without routes. An HTTPS listener, which the SNI picks, has its own table; requests
//! there that belong to another HTTPS or TLS listener of the port are answered with 421.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use sesame_proto::schema;
use sesame_proto::schema::route::Action as RouteAction;

use super::displaced::{self, Displaced};
use super::hostnames::Hostname;
use super::l4_routes;
use super::listeners::ListenerState;
use super::routes::Routes;
use super::shadowed::Shadowed;
use super::virtual_hosts::VirtualHosts;

/// What a Gateway serves.
pub(super) struct Served {
    pub(super) ports: Vec<schema::Port>,
    pub(super) route_tables: Vec<schema::RouteTable>,
}

/// Builds all ports and route tables of the listeners that are served.
///
/// Notes in `shadowed` which matches requests can reach, and which not, and in `displaced` what routes lose to others.
pub(super) fn build(
    listeners: &[&ListenerState<'_>],
    routes: &Routes,
    shadowed: &mut Shadowed,
    displaced: &mut Displaced,
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
                .map(|placed| placed.to_schema(&owners, routes, displaced))
                .collect(),
        });
        for family in [of(&[schema::Protocol::Http]), by_server_name.clone()] {
            displaced::by_listener_sets(&family, displaced);
        }

        let http = of(&[schema::Protocol::Http]);
        if !http.is_empty() {
            let owners = Owners::new(&http);
            let mut hosts = VirtualHosts::default();
            for listener in &http {
                hosts.add_listener(listener, &owners, routes, (shadowed, displaced));
            }
            served.route_tables.push(hosts.into_table(http_table(port)));
        }
        // A client may take a connection to one of them for requests to any other whose certificate it was shown, also to
        // one that passes TLS through.
        for listener in of(&[schema::Protocol::Https]) {
            let mut hosts = VirtualHosts::default();
            hosts.add_listener(listener, &owners, routes, (shadowed, displaced));
            hosts.add_misdirected(listener, &by_server_name);
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
pub(super) struct Placed<'a> {
    pub(super) state: &'a ListenerState<'a>,
    protocol: schema::Protocol,
    pub(super) port: u16,
    pub(super) hostname: &'a Hostname,
}

impl Placed<'_> {
    fn https_table(&self) -> String {
        format!("https/{}/{}", self.port, self.state.provenance)
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.protocol == schema::Protocol::Https {
            "https"
        } else {
            "http"
        }
    }

    /// `owners` are the listeners of the port that server names are shared out among.
    fn to_schema(
        &self,
        owners: &Owners<'_>,
        routes: &Routes,
        displaced: &mut Displaced,
    ) -> schema::Listener {
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
                    let owns = |domain: &Hostname| owners.owns(self.hostname, domain);
                    l4_routes::by_server_name(attachments, routes, terminates, owns, displaced)
                }
                schema::Protocol::RawTcp | schema::Protocol::RawUdp => {
                    l4_routes::oldest(attachments, routes, displaced)
                }
            },
        }
    }
}

/// The hostnames of the listeners that requests are shared out among.
pub(super) struct Owners<'a>(HashSet<&'a str>);

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
    pub(super) fn owns(&self, listener: &Hostname, domain: &Hostname) -> bool {
        // Alone it has all that it covers.
        self.0.len() == 1
            || domain.covering_keys().find(|key| self.0.contains(key)) == Some(listener.key())
    }
}

/// Adds the names of the Backends that routes with session persistence send to.
pub(super) fn session_backends_of<'h>(
    host: &'h schema::VirtualHost,
    names: &mut impl Extend<&'h str>,
) {
    for route in &host.routes {
        if let Some(RouteAction::Forward(forward)) = &route.action
            && forward.session.is_some()
        {
            names.extend(forward.backends.iter().map(|share| share.backend.as_str()));
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
