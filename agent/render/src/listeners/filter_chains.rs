//! Filter chains, which decide by server name how a TCP port handles a connection.
//!
//! All HTTP listeners of a port share one chain; each HTTPS listener and TLS route has its own. TLS
//! connections whose server name has no route are rejected, and never reach a listener with a wider
//! hostname. Stable chain names let Envoy keep connections across updates.

use std::collections::BTreeSet;
use std::{iter, slice};

use envoy_types::pb::envoy::config::core::v3::TransportSocket;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};
use sesame_proto::schema::{L4Route, Listener, Port, Protocol};

use super::quic;
use crate::access_log::LoggedPlace;
use crate::context::RenderContext;
use crate::http::client_addresses::{ClientAddresses, Peers};
use crate::http::hcm::{self, Table};
use crate::http::http3::HttpConnections;
use crate::l4::addresses::SourceMatches;
use crate::rendered::{RenderProblems, find};
use crate::{l4, tls, wrappers};

/// In order of preference.
const HTTP_ALPN: [&str; 2] = ["h2", "http/1.1"];
/// Handshake timeout. Without it, a silent client would stay connected forever.
pub(super) const HANDSHAKE_MS: u64 = 10_000;

/// `http3` is true if the port's HTTPS listeners are served over HTTP/3 too.
pub(super) fn render(
    port: &Port,
    http3: bool,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Vec<FilterChain> {
    let Port {
        transport: _,
        port: number,
        listeners,
        inside: _,
        proxy_protocol: _,
        // Only for UDP.
        http3: _,
        // Read by `Peers`.
        client_address: _,
        // In the context.
        edge: _,
    } = port;
    let peers = Peers::new(port, context);
    if let (Err(why), Some(listener)) = (&peers, listeners.first()) {
        let consequence = "the source address of each connection counts as the client's";
        problems.add(&listener.name, format!("{why}; {consequence}"));
    }
    let mut chains = Chains {
        http3,
        peers: peers.unwrap_or_else(|_| Peers::none()),
        ready: Vec::new(),
        matched: BTreeSet::new(),
    };
    for listener in listeners {
        let added = chains.add(listener, *number, context, problems);
        if added.is_err() {
            chains.hold(listener, *number, context);
        }
        problems.value(&listener.name, added, "the listener is left out");
    }
    chains.finish()
}

pub(super) fn usable<'t>(
    route_table: &'t str,
    context: &RenderContext<'t>,
) -> Result<Table<'t>, String> {
    let table = find(context.route_tables, route_table)
        .ok_or_else(|| format!("its route table `{route_table}` is not in the snapshot"))?;
    Ok(
        if context.subscriptions.route_tables.is_inline(route_table) {
            Table::Inline(&table.bytes)
        } else {
            Table::File(route_table)
        },
    )
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ChainKind {
    Plain,
    Tls,
}

/// Envoy rejects a whole listener if two of its chains have the same name or match.
struct Chains<'p> {
    http3: bool,
    peers: Peers<'p>,
    ready: Vec<(ChainKind, FilterChain)>,
    matched: BTreeSet<(ChainKind, String)>,
}

impl Chains<'_> {
    fn add(
        &mut self,
        listener: &Listener,
        port: u32,
        context: &RenderContext<'_>,
        problems: &mut RenderProblems,
    ) -> Result<(), String> {
        let Listener {
            name,
            protocol: _,
            hostname,
            route_table,
            // Rendered by `https`.
            tls: _,
            l4_routes,
        } = listener;
        let place = |protocol| LoggedPlace::new(protocol, port, Some(name.as_str()));
        match listener.protocol() {
            Protocol::Http => {
                let table = usable(route_table, context)?;
                // All HTTP listeners of the port share this table, so adding or removing one does
                // not change the chain.
                if self.matched.insert((ChainKind::Plain, String::new())) {
                    let place = LoggedPlace::new("http", port, None);
                    let chains = self.by_peer(route_table, |addresses| {
                        let tcp = HttpConnections::Tcp;
                        hcm::render(place, table, None, tcp, addresses, context)
                    });
                    let chains = chains.into_iter().map(|it| (ChainKind::Plain, it));
                    self.ready.extend(chains);
                }
                Ok(())
            }
            Protocol::Https => {
                let chains = self.https(listener, place("https"), context)?;
                self.push(ChainKind::Tls, slice::from_ref(hostname), chains)
            }
            Protocol::Tls => {
                self.push_tls_routes(listener, place("tls"), context, problems)?;
                let rest = (ChainKind::Tls, hostname.to_ascii_lowercase());
                if self.matched.contains(&rest) {
                    return Ok(());
                }
                let refused = chain(name, l4::refuse(place("tls"), context));
                self.push(ChainKind::Tls, slice::from_ref(hostname), vec![refused])
            }
            Protocol::RawTcp => {
                let place = place("tcp");
                let proxy = l4::tcp_proxy(place, l4_routes.first(), context, problems);
                let chain = chain(name, proxy);
                let chains = match l4_routes.first() {
                    Some(route) => by_source(chain, place, route, context, problems),
                    None => vec![chain],
                };
                self.push(ChainKind::Plain, &[String::new()], chains)
            }
            Protocol::RawUdp => Err("the listener is UDP on a TCP port".to_owned()),
        }
    }

    fn https(
        &self,
        listener: &Listener,
        place: LoggedPlace<'_>,
        context: &RenderContext<'_>,
    ) -> Result<Vec<FilterChain>, String> {
        let tls = listener.tls.as_ref();
        let tls = tls.ok_or("the listener is HTTPS but has no TLS settings")?;
        let table = usable(&listener.route_table, context)?;
        let connections = match quic::allowed(listener) {
            Some(_) if self.http3 => HttpConnections::TcpBesideQuic(place.port),
            _ => HttpConnections::Tcp,
        };
        let socket = tls::downstream(tls, &HTTP_ALPN, context)?;
        let chains = self.by_peer(&listener.name, |addresses| {
            hcm::render(place, table, Some(tls), connections, addresses, context)
        });
        let chains = chains.into_iter();
        Ok(chains
            .map(|chain| over_tls(chain, socket.clone(), context))
            .collect())
    }

    /// Returns a chain for known proxies, if there are any, and one for all other peers.
    fn by_peer(
        &self,
        name: &str,
        manager: impl Fn(ClientAddresses<'_>) -> Filter,
    ) -> Vec<FilterChain> {
        let peers = &self.peers;
        let behind_proxies = peers.behind_proxies().map(|addresses| {
            let matched = FilterChainMatch {
                source_prefix_ranges: peers.proxies.clone(),
                ..Default::default()
            };
            let chain = chain(&format!("{name}/proxies"), manager(addresses));
            with_match(chain, matched)
        });
        let others = chain(name, manager(peers.others));
        iter::once(others).chain(behind_proxies).collect()
    }

    /// Closes connections for a listener that cannot be served. Otherwise, a listener with a wider
    /// hostname would accept them.
    fn hold(&mut self, listener: &Listener, port: u32, context: &RenderContext<'_>) {
        if !matches!(listener.protocol(), Protocol::Https | Protocol::Tls) {
            return;
        }
        let place = LoggedPlace::new("tls", port, Some(listener.name.as_str()));
        let refused = chain(&listener.name, l4::refuse(place, context));
        let hostname = slice::from_ref(&listener.hostname);
        let _taken = self.push(ChainKind::Tls, hostname, vec![refused]);
    }

    /// A chain matches the route's server names, or the listener's if the route has none.
    fn push_tls_routes(
        &mut self,
        listener: &Listener,
        place: LoggedPlace<'_>,
        context: &RenderContext<'_>,
        problems: &mut RenderProblems,
    ) -> Result<(), String> {
        let tls = listener.tls.as_ref();
        let socket = tls
            .map(|tls| tls::downstream(tls, &[], context))
            .transpose()?;
        for route in &listener.l4_routes {
            let proxy = l4::tcp_proxy(place, Some(route), context, problems);
            let L4Route {
                name,
                hostnames,
                backends: _,
                // Rendered by `by_source`.
                address_filters: _,
                // Only for explanations.
                exempt_from: _,
                refused_by: _,
            } = route;
            let mut chain = chain(&format!("{}/{name}", listener.name), proxy);
            if let Some(socket) = &socket {
                chain = over_tls(chain, socket.clone(), context);
            }
            let hostnames = match hostnames.as_slice() {
                [] => slice::from_ref(&listener.hostname),
                hostnames => hostnames,
            };
            let chains = by_source(chain, place, route, context, problems);
            let added = self.push(ChainKind::Tls, hostnames, chains);
            let consequence = format!("the route is left out of {}", listener.name);
            problems.value(name, added, &consequence);
        }
        Ok(())
    }

    /// `*` or an empty name matches all names that no other chain matches. The sources of `chains`
    /// must be disjoint.
    fn push(
        &mut self,
        kind: ChainKind,
        hostnames: &[String],
        chains: Vec<FilterChain>,
    ) -> Result<(), String> {
        let mut server_names = Vec::new();
        let mut taken = None;
        for hostname in self::server_names(hostnames)? {
            if self.matched.insert((kind, hostname.clone())) {
                server_names.push(hostname);
            } else {
                taken = Some(hostname);
            }
        }
        if server_names.is_empty() {
            return Err(format!(
                "server name `{}` is already used by another listener on the port",
                taken.unwrap_or_default()
            ));
        }
        for mut chain in chains {
            if !server_names.iter().any(String::is_empty) {
                let matched = chain.filter_chain_match.get_or_insert_default();
                matched.server_names.clone_from(&server_names);
            }
            self.ready.push((kind, chain));
        }
        Ok(())
    }

    /// A TLS chain may match all remaining connections, so limit the plaintext chain on a mixed
    /// port.
    fn finish(self) -> Vec<FilterChain> {
        let mixed = self.ready.iter().any(|(kind, _)| *kind == ChainKind::Tls);
        self.ready
            .into_iter()
            .map(|(kind, mut chain)| {
                if mixed && kind == ChainKind::Plain {
                    let matched = chain.filter_chain_match.get_or_insert_default();
                    "raw_buffer".clone_into(&mut matched.transport_protocol);
                }
                chain
            })
            .collect()
    }
}

/// Returns an empty name for a hostname that matches all names.
pub(super) fn server_names(hostnames: &[String]) -> Result<Vec<String>, String> {
    let names = hostnames.iter().map(|hostname| {
        let hostname = if hostname == "*" { "" } else { hostname }.to_ascii_lowercase();
        let rest = hostname.strip_prefix("*.").unwrap_or(&hostname);
        if rest.contains('*') {
            return Err(format!(
                "server name `{hostname}`: `*` is only allowed at the start"
            ));
        }
        Ok(hostname)
    });
    names.collect()
}

pub(super) fn chain(name: &str, filter: Filter) -> FilterChain {
    FilterChain {
        name: name.to_owned(),
        filters: vec![filter],
        ..Default::default()
    }
}

/// Splits a route's chain by source. If the address filters are not usable, closes all connections.
fn by_source(
    chain: FilterChain,
    place: LoggedPlace<'_>,
    route: &L4Route,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Vec<FilterChain> {
    let matches = SourceMatches::new(&route.address_filters);
    let matches = problems.value(&route.name, matches, "its connections are closed");
    let SourceMatches { allowed, denied } = matches.unwrap_or_else(SourceMatches::none);
    let place = LoggedPlace {
        route: Some(&route.name),
        ..place
    };
    let denied = denied.into_iter().map(|(suffix, matched)| {
        let name = format!("{}/{suffix}", chain.name);
        with_match(self::chain(&name, l4::refuse(place, context)), matched)
    });
    let denied: Vec<FilterChain> = denied.collect();
    let allowed = allowed.map(|matched| with_match(chain, matched));
    allowed.into_iter().chain(denied).collect()
}

fn with_match(chain: FilterChain, matched: FilterChainMatch) -> FilterChain {
    FilterChain {
        filter_chain_match: (matched != FilterChainMatch::default()).then_some(matched),
        ..chain
    }
}

fn over_tls(
    chain: FilterChain,
    socket: TransportSocket,
    context: &RenderContext<'_>,
) -> FilterChain {
    let timeout = context.edge.tls_handshake_timeout_ms;
    FilterChain {
        transport_socket: Some(socket),
        transport_socket_connect_timeout: match timeout.unwrap_or(HANDSHAKE_MS) {
            0 => None,
            time => wrappers::milliseconds(time),
        },
        ..chain
    }
}
