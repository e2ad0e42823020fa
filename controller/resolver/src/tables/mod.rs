//! Builds ports, listeners and route tables.
//!
//! Only the listener with the most specific hostname handles a request (listener isolation). HTTP
//! listeners on a port share a route table, in which each hostname is a virtual host even without
//! routes. HTTPS listeners have their own tables, and respond with 421 to requests for other
//! listeners on the port.

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
use self::l4_routes::L4Routes;
use self::placed::{HostnameOwners, PlacedListener, http_table};
use self::room::{ListenerHosts, Room, WithHosts};
pub(crate) use self::room::{RoomOfGateways, share};
pub(crate) use self::shadowed::Unreached;
use self::shadowed::{Hidden, Shadowed};
use self::virtual_hosts::VirtualHosts;
use super::context::Problems;
use super::listeners::implicit::FallbackRole;
use super::routes::Routes;
use super::routes::attachments::AttachedListener;
use super::syntax::hostnames::Hostname;
use sesame_kinds::status::Grounds;

/// Maximum number of HTTPS and TLS listeners on a port for which each HTTPS listener responds with
/// 421 for all other listeners' hostnames. The number of these virtual hosts grows quadratically.
/// With more listeners, each responds with 421 only for names in its own certificates, because
/// clients reuse connections only for those names.
const MAX_MISDIRECTING_LISTENERS: usize = 128;

/// Backend names also encode how to reach the Backend (see `reached_by`).
#[expect(clippy::struct_field_names, reason = "the schema's name")]
pub(crate) struct Tables {
    pub(crate) ports: Vec<schema::Port>,
    pub(crate) route_tables: Vec<schema::RouteTable>,
    /// Size of all routes in bytes, including routes that are left out.
    pub(crate) wanted: u64,
}

/// Lost traffic to report to route authors.
#[derive(Debug)]
pub(crate) struct Findings {
    shadowed: Shadowed,
    displaced: Displaced,
}

impl Findings {
    /// Pass [`Shadowed::by_host`] to also record hidden matches per virtual host.
    pub(crate) fn new(shadowed: Shadowed) -> Self {
        Self {
            shadowed,
            displaced: Displaced::default(),
        }
    }

    /// Reports the findings as problems.
    pub(crate) fn report(
        self,
        routes: &Routes<'_>,
        problems: &mut Problems,
    ) -> (LostRequests, Hidden) {
        let Self {
            mut shadowed,
            displaced,
        } = self;
        let displaced = displaced.report(routes, problems);
        let hidden = shadowed.take_hidden(routes);
        let unreached = shadowed.report(routes, problems);
        (
            LostRequests {
                displaced,
                unreached,
            },
            hidden,
        )
    }
}

#[derive(Debug, Default)]
pub(crate) struct LostRequests {
    /// Traffic lost to other routes or listeners, and matches left out because of limits.
    pub(crate) displaced: BTreeMap<ParentPlace, Grounds>,
    /// Keyed by route index.
    pub(crate) unreached: BTreeMap<usize, Unreached>,
}

/// Returns the size of all routes in bytes, before any are left out.
pub(crate) fn wanted<'a>(
    listeners: impl Iterator<Item = &'a AttachedListener<'a, 'a>>,
    routes: &Routes<'_>,
) -> u64 {
    let by_port = by_port(listeners);
    let families: Vec<Families<'_, '_>> = by_port.values().map(|it| Families::new(it)).collect();
    Room::wanted(families.iter().flat_map(Families::with_hosts), routes)
}

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
    let mut l4_routes = L4Routes::new(routes);
    for (((transport, port), placed), families) in by_port.iter().zip(&families) {
        let Families {
            http,
            https: _,
            by_server_name,
        } = families;
        let (port, by_server_name) = (*port, by_server_name.as_slice());
        let owners = HostnameOwners::new(by_server_name);
        tables.ports.push(schema::Port {
            transport: *transport,
            port: port.into(),
            inside: 0,
            proxy_protocol: 0,
            http3: false,
            edge: None,
            client_address: None,
            listeners: placed
                .iter()
                .map(|placed| to_schema(placed, &owners, &mut l4_routes, &mut findings.displaced))
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
        let https = https_tables(families, &owners, (&room, routes), findings);
        tables.route_tables.extend(https);
    }
    tables.route_tables.sort_by(|a, b| a.name.cmp(&b.name));
    tables
}

/// Each listener responds with 421 for other listeners' hostnames: clients may reuse a connection
/// for any hostname in the certificate, including hostnames of TLS passthrough listeners.
fn https_tables(
    families: &Families<'_, '_>,
    owners: &HostnameOwners<'_>,
    (room, routes): (&Room, &Routes<'_>),
    findings: &mut Findings,
) -> Vec<schema::RouteTable> {
    let all = families.by_server_name.as_slice();
    // By Gateway. The fallback listener takes them, and comes last because it has no hostname.
    let mut members: BTreeMap<usize, VirtualHosts> = BTreeMap::new();
    let table = |with_hosts: &WithHosts<'_, '_>| {
        let (listener, _) = with_hosts;
        let (role, gateway) = (listener.listener.fallback, listener.listener.rank.gateway);
        let mut hosts = VirtualHosts::default();
        hosts.add_listener(with_hosts, room, routes, findings);
        match role {
            Some(FallbackRole::Member) => {
                members
                    .entry(gateway)
                    .or_default()
                    .add_member(&hosts, listener);
            }
            Some(FallbackRole::Listener) => {
                hosts.append(members.remove(&gateway).unwrap_or_default());
            }
            None => {}
        }
        // The fallback listener may serve a wildcard, which must not get other listeners' requests.
        let is_fallback = role == Some(FallbackRole::Listener);
        if all.len() > MAX_MISDIRECTING_LISTENERS && !is_fallback {
            hosts.add_misdirected_by_certificate(listener, all, owners);
        } else {
            hosts.add_misdirected(listener, all);
        }
        hosts.into_table(listener.route_table())
    };
    families.https.iter().map(table).collect()
}

/// Listeners on a port, grouped by how Envoy selects among them: by Host header or server name.
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

    fn with_hosts(&self) -> impl Iterator<Item = &WithHosts<'p, 'a>> + Clone {
        self.http.iter().chain(&self.https)
    }
}

/// Groups listeners by transport and port, most specific hostname first.
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
            // A TLS listener without routes closes connections before the handshake.
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

/// `owners` contains the hostnames of all HTTPS and TLS listeners on the port.
fn to_schema(
    placed: &PlacedListener<'_>,
    owners: &HostnameOwners<'_>,
    l4: &mut L4Routes<'_, '_>,
    displaced: &mut Displaced,
) -> schema::Listener {
    let l4_routes = match placed.protocol {
        // Without routes, the listener rejects all traffic.
        _ if placed.listener.refuses() => Vec::new(),
        schema::Protocol::Http | schema::Protocol::Https => Vec::new(),
        schema::Protocol::Tls => {
            let terminates = placed.listener.tls.is_some();
            let owns = |domain: &Hostname| owners.owns(placed.hostname, domain);
            l4_routes::by_server_name(placed, l4, terminates, owns, displaced)
        }
        schema::Protocol::RawTcp | schema::Protocol::RawUdp => {
            l4_routes::oldest(placed, l4, displaced)
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

/// Adds the names of Backends with session persistence.
pub(crate) fn session_backends_of<'h>(
    host: &'h schema::VirtualHost,
    names: &mut impl Extend<&'h str>,
) {
    for forward in forwards(host).filter(|forward| forward.session.is_some()) {
        names.extend(forward.backends.iter().map(|share| share.backend.as_str()));
    }
}

/// Adds the names of Backends for requests, mirrors and external authorization.
pub(crate) fn backends_of<'h>(host: &'h schema::VirtualHost, names: &mut impl Extend<&'h str>) {
    for forward in forwards(host) {
        let weighted = forward.backends.iter().map(|share| share.backend.as_str());
        let mirrored = forward.mirrors.iter().map(|mirror| mirror.backend.as_str());
        names.extend(weighted.chain(mirrored).filter(|name| !name.is_empty()));
    }
    let route_auths = host.routes.iter().flat_map(|route| &route.external_auth);
    let auths = host.external_auth.iter().chain(route_auths);
    names.extend(auths.map(|auth| auth.backend.as_str()));
}

fn forwards(host: &schema::VirtualHost) -> impl Iterator<Item = &schema::Forward> {
    host.routes.iter().filter_map(|route| match &route.action {
        Some(Action::Forward(forward)) => Some(forward),
        _ => None,
    })
}
