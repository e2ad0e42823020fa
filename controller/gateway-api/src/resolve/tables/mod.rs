//! Builds the ports, listeners and route tables of a snapshot.
//!
//! Among the listeners on a port, only the one with the most specific matching hostname handles a
//! request (listener isolation). All HTTP listeners on a port share a route table, in which each
//! listener's hostname is a virtual host even without routes. An HTTPS listener is selected by SNI
//! and has its own route table. It responds with 421 to requests for another HTTPS or TLS listener
//! on the port.

mod candidates;
pub(crate) mod displaced;
mod l4_routes;
mod placed;
pub(crate) mod reached_by;
mod room;
pub(crate) mod shadowed;
mod taken_hostnames;
mod virtual_hosts;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sesame_proto::schema;
use sesame_proto::schema::route::Action;

use self::displaced::{Displaced, ParentPlace};
use self::placed::{HostnameOwners, PlacedListener, http_table};
use self::room::{ListenerHosts, Room, WithHosts};
pub(crate) use self::room::{RoomOfGateways, share};
pub(crate) use self::shadowed::Unreached;
use self::shadowed::{Hidden, Shadowed};
use self::virtual_hosts::VirtualHosts;
use super::context::Problems;
use super::routes::Routes;
use super::routes::attachments::AttachedListener;
use super::syntax::hostnames::Hostname;
use crate::status::Grounds;

/// Up to this number of HTTPS and TLS listeners on a port, each HTTPS listener has virtual hosts
/// that respond with 421 for the hostnames of all others. The number of virtual hosts thus grows
/// quadratically. With more listeners, there are such virtual hosts only for the names in the
/// listener's certificates, because clients reuse connections only for those names.
const MAX_EACH_BESIDE: usize = 128;

/// The ports and route tables of Gateways that are served together. A Backend's name also encodes
/// how to reach the Backend (see `reached_by`).
#[expect(clippy::struct_field_names, reason = "the schema's name")]
pub(crate) struct Tables {
    pub(crate) ports: Vec<schema::Port>,
    pub(crate) route_tables: Vec<schema::RouteTable>,
    /// Size in bytes that all routes would have if none were left out.
    pub(crate) wanted: u64,
}

/// Findings about the routes of all Gateways, collected while building tables, to be reported to
/// the routes' authors.
#[derive(Debug)]
pub(crate) struct Findings {
    shadowed: Shadowed,
    displaced: Displaced,
}

impl Findings {
    /// Creates empty findings. `shadowed` determines which details of hidden matches to record.
    pub(crate) fn new(shadowed: Shadowed) -> Self {
        Self {
            shadowed,
            displaced: Displaced::default(),
        }
    }

    /// Reports the findings as problems. Returns what route statuses report, and the hidden
    /// matches.
    pub(crate) fn tell(
        self,
        routes: &Routes<'_>,
        problems: &mut Problems,
    ) -> (LostRequests, Hidden) {
        let Self {
            mut shadowed,
            displaced,
        } = self;
        let displaced = displaced.tell(routes, problems);
        let hidden = shadowed.take_hidden(routes);
        let unreached = shadowed.tell(routes, problems);
        (
            LostRequests {
                displaced,
                unreached,
            },
            hidden,
        )
    }
}

/// Messages about traffic that routes lose to routes and listeners with higher precedence.
#[derive(Debug, Default)]
pub(crate) struct LostRequests {
    /// Reasons and messages for lost hostnames and connections, and for regular expressions over
    /// the cost limit.
    pub(crate) displaced: BTreeMap<ParentPlace, Grounds>,
    /// The first unreachable match of each route, keyed by route index.
    pub(crate) unreached: BTreeMap<usize, Unreached>,
}

/// Returns the size in bytes that the routes on the served listeners would have if none were left
/// out.
pub(crate) fn wanted<'a>(
    listeners: impl Iterator<Item = &'a AttachedListener<'a, 'a>>,
    routes: &Routes<'_>,
) -> u64 {
    let by_port = by_port(listeners);
    let families: Vec<Families<'_, '_>> = by_port.values().map(|it| Families::new(it)).collect();
    Room::wanted(families.iter().flat_map(Families::with_hosts), routes)
}

/// Builds all ports and route tables of the served listeners, and adds to `findings`.
pub(crate) fn build<'a>(
    listeners: impl Iterator<Item = &'a AttachedListener<'a, 'a>>,
    routes: &Routes<'_>,
    of_gateways: RoomOfGateways,
    findings: &mut Findings,
) -> Tables {
    let by_port = by_port(listeners);
    let families: Vec<Families<'_, '_>> = by_port.values().map(|it| Families::new(it)).collect();
    let with_hosts = families.iter().flat_map(Families::with_hosts);
    let room = Room::new(&with_hosts, routes, of_gateways);
    let mut tables = Tables {
        ports: Vec::new(),
        route_tables: Vec::new(),
        wanted: room.wanted,
    };
    for (((transport, port), placed), families) in by_port.iter().zip(&families) {
        let Families {
            http,
            https,
            by_server_name,
        } = families;
        let (port, by_server_name) = (*port, by_server_name.as_slice());
        let owners = HostnameOwners::new(by_server_name);
        tables.ports.push(schema::Port {
            transport: *transport,
            port: port.into(),
            inside: 0,
            listeners: placed
                .iter()
                .map(|placed| to_schema(placed, &owners, routes, &mut findings.displaced))
                .collect(),
        });
        let by_host: Vec<&PlacedListener<'_>> = http.iter().map(|(it, _)| *it).collect();
        for family in [&by_host, by_server_name] {
            taken_hostnames::find(family, &mut findings.displaced);
        }

        if !http.is_empty() {
            let mut hosts = VirtualHosts::default();
            for listener in http {
                hosts.add_listener(listener, &room, routes, findings);
            }
            tables.route_tables.push(hosts.into_table(http_table(port)));
        }
        // A client may reuse a connection to one of these listeners for another hostname in the
        // certificate, even if that hostname belongs to another listener. The other listener may
        // also pass TLS through.
        for with_hosts in https {
            let (listener, _) = with_hosts;
            let mut hosts = VirtualHosts::default();
            hosts.add_listener(with_hosts, &room, routes, findings);
            if by_server_name.len() > MAX_EACH_BESIDE {
                hosts.add_misdirected_by_certificate(listener, by_server_name, &owners);
            } else {
                hosts.add_misdirected(listener, by_server_name);
            }
            tables
                .route_tables
                .push(hosts.into_table(listener.route_table()));
        }
    }
    tables.route_tables.sort_by(|a, b| a.name.cmp(&b.name));
    tables
}

/// The listeners on one port, grouped by what selects among them: the Host header or the TLS server
/// name.
struct Families<'p, 'a> {
    http: Vec<WithHosts<'p, 'a>>,
    https: Vec<WithHosts<'p, 'a>>,
    /// All HTTPS and TLS listeners.
    by_server_name: Vec<&'p PlacedListener<'a>>,
}

impl<'p, 'a> Families<'p, 'a> {
    fn new(placed: &'p [PlacedListener<'a>]) -> Self {
        let of = |protocols: &[schema::Protocol]| -> Vec<&'p PlacedListener<'a>> {
            let all = placed.iter();
            all.filter(|it| protocols.contains(&it.protocol)).collect()
        };
        let with_hosts = |all: Vec<&'p PlacedListener<'a>>, owners: &HostnameOwners<'_>| {
            let all = all.into_iter();
            all.map(|it| (it, ListenerHosts::new(it, owners))).collect()
        };
        let http = of(&[schema::Protocol::Http]);
        let by_server_name = of(&[schema::Protocol::Https, schema::Protocol::Tls]);
        let owners = HostnameOwners::new(&http);
        let http = with_hosts(http, &owners);
        let owners = HostnameOwners::new(&by_server_name);
        Self {
            http,
            https: with_hosts(of(&[schema::Protocol::Https]), &owners),
            by_server_name,
        }
    }

    /// Returns the HTTP and HTTPS listeners.
    fn with_hosts(&self) -> impl Iterator<Item = &WithHosts<'p, 'a>> + Clone {
        self.http.iter().chain(&self.https)
    }
}

/// Groups the served listeners by transport and port. In each group, the most specific hostname
/// comes first.
fn by_port<'a>(
    listeners: impl Iterator<Item = &'a AttachedListener<'a, 'a>>,
) -> BTreeMap<(i32, u16), Vec<PlacedListener<'a>>> {
    let mut by_port: BTreeMap<(i32, u16), Vec<PlacedListener<'_>>> = BTreeMap::new();
    for AttachedListener {
        listener,
        client_key,
        attachments,
    } in listeners.filter(|attached| attached.listener.is_served())
    {
        let (protocol, hostname) = match &listener.holds {
            // TLS connections to this listener are closed before the handshake.
            Some(held) if held.tls => (Some(schema::Protocol::Tls), Some(&held.hostname)),
            Some(held) => (Some(schema::Protocol::Http), Some(&held.hostname)),
            None => (listener.protocol, listener.hostname.as_ref()),
        };
        let (Some(protocol), Some(port), Some(hostname)) = (protocol, listener.port, hostname)
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
            .push(PlacedListener {
                listener,
                client_key: *client_key,
                attachments,
                protocol,
                port,
                hostname,
            });
    }
    for placed in by_port.values_mut() {
        placed.sort_by_key(|placed| {
            (
                Reverse(placed.hostname.specificity()),
                placed.listener.provenance.as_str(),
            )
        });
    }
    by_port
}

/// Converts a listener to its form in the snapshot. `owners` contains the hostnames of all HTTPS
/// and TLS listeners on the port.
fn to_schema(
    placed: &PlacedListener<'_>,
    owners: &HostnameOwners<'_>,
    routes: &Routes<'_>,
    displaced: &mut Displaced,
) -> schema::Listener {
    let l4_routes = match placed.protocol {
        // Reject all traffic if a required filter is not available.
        _ if placed.listener.refuses() => Vec::new(),
        schema::Protocol::Http | schema::Protocol::Https => Vec::new(),
        schema::Protocol::Tls => {
            let terminates = placed.listener.tls.is_some();
            let owns = |domain: &Hostname| owners.owns(placed.hostname, domain);
            l4_routes::by_server_name(placed, routes, terminates, owns, displaced)
        }
        schema::Protocol::RawTcp | schema::Protocol::RawUdp => {
            l4_routes::oldest(placed, routes, displaced)
        }
    };
    schema::Listener {
        name: placed.listener.provenance.clone(),
        protocol: placed.protocol.into(),
        hostname: placed.hostname.as_str().to_owned(),
        route_table: placed.route_table(),
        tls: placed.listener.tls.clone(),
        l4_routes,
    }
}

/// Adds the names of the Backends that routes of this virtual host use with session persistence.
pub(crate) fn session_backends_of<'h>(
    host: &'h schema::VirtualHost,
    names: &mut impl Extend<&'h str>,
) {
    for forward in forwards(host).filter(|forward| forward.session.is_some()) {
        names.extend(forward.backends.iter().map(|share| share.backend.as_str()));
    }
}

/// Adds the names of the Backends to which a virtual host sends requests or authorization checks.
pub(crate) fn backends_of<'h>(host: &'h schema::VirtualHost, names: &mut impl Extend<&'h str>) {
    for forward in forwards(host) {
        let weighted = forward.backends.iter().map(|share| share.backend.as_str());
        let mirrored = forward.mirrors.iter().map(|mirror| mirror.backend.as_str());
        names.extend(weighted.chain(mirrored).filter(|name| !name.is_empty()));
    }
    let of_routes = host.routes.iter().flat_map(|route| &route.external_auth);
    let asked = host.external_auth.iter().chain(of_routes);
    names.extend(asked.map(|auth| auth.backend.as_str()));
}

fn forwards(host: &schema::VirtualHost) -> impl Iterator<Item = &schema::Forward> {
    host.routes.iter().filter_map(|route| match &route.action {
        Some(Action::Forward(forward)) => Some(forward),
        _ => None,
    })
}
