//! What a TCP port does with a connection, by its server name.
//!
//! HTTP listeners of a port share one chain and one route table. Each HTTPS listener has its own, and each
//! TLS route; a TLS listener's server names that no route of it has are refused, rather than left to a wider
//! listener. A chain's name is the listener's, so that Envoy recognises it in an update and leaves its
//! connections alone.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::listener::v3::{FilterChain, FilterChainMatch};
use envoy_types::pb::google::protobuf::Duration;
use sesame_proto::schema::{L4Route, Listener, Port, Protocol};

use super::{Context, Problem, l4, tls, wrappers};
use crate::http::hcm::{self, Table};

/// Offered to clients of HTTPS, best first.
const HTTP_ALPN: [&str; 2] = ["h2", "http/1.1"];
/// One who stops after the first message would stay for ever.
const HANDSHAKE_MS: u64 = 10_000;

pub(super) fn render(
    port: &Port,
    context: &Context<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<FilterChain> {
    let Port {
        transport: _,
        port: number,
        listeners,
    } = port;
    let mut chains = Chains::default();
    for listener in listeners {
        let Listener {
            name,
            protocol: _,
            hostname,
            route_table,
            tls,
            l4_routes,
        } = listener;
        let result = match listener.protocol() {
            Protocol::Http => http_chain(*number, route_table, context)
                .map(|chain| chains.push_shared(Kind::Plain, chain)),
            Protocol::Https => (|| {
                let tls = tls
                    .as_ref()
                    .ok_or("the listener is HTTPS but says nothing of TLS")?;
                let chain = FilterChain {
                    name: name.clone(),
                    filters: vec![hcm::render(
                        "https",
                        *number,
                        usable(route_table, context)?,
                        context,
                    )],
                    transport_socket: Some(tls::downstream(tls, &HTTP_ALPN, context)?),
                    transport_socket_connect_timeout: handshake(context),
                    ..Default::default()
                };
                chains.push(Kind::Tls, &[hostname.as_str()], chain)
            })(),
            Protocol::Tls => tls_chains(listener, l4_routes, *number, context, &mut chains),
            Protocol::RawTcp => {
                let chain = FilterChain {
                    name: name.clone(),
                    filters: vec![l4::tcp_proxy(
                        "tcp",
                        *number,
                        l4_routes.first(),
                        context,
                        problems,
                    )],
                    ..Default::default()
                };
                chains.push(Kind::Plain, &[""], chain)
            }
            Protocol::RawUdp => Err("the listener is UDP on a TCP port".to_owned()),
        };
        if let Err(reason) = result {
            problems.push(Problem::new(
                name,
                format!("{reason}; the listener is left out"),
            ));
        }
    }
    problems.append(&mut chains.problems);
    chains.finish()
}

fn http_chain(port: u32, route_table: &str, context: &Context<'_>) -> Result<FilterChain, String> {
    Ok(FilterChain {
        // The table is shared by the port's HTTP listeners, which come and go without touching the chain.
        name: route_table.to_owned(),
        filters: vec![hcm::render(
            "http",
            port,
            usable(route_table, context)?,
            context,
        )],
        ..Default::default()
    })
}

/// Passes TLS through, or terminates it, by the server name.
fn tls_chains(
    listener: &Listener,
    routes: &[L4Route],
    port: u32,
    context: &Context<'_>,
    chains: &mut Chains,
) -> Result<(), String> {
    let transport_socket = listener
        .tls
        .as_ref()
        .map(|tls| tls::downstream(tls, &[], context))
        .transpose()?;
    let mut problems = Vec::new();
    for route in routes {
        let L4Route {
            name,
            hostnames,
            backends: _,
        } = route;
        let hostnames: Vec<&str> = if hostnames.is_empty() {
            vec![listener.hostname.as_str()]
        } else {
            hostnames.iter().map(String::as_str).collect()
        };
        let chain = FilterChain {
            name: format!("{}/{name}", listener.name),
            filters: vec![l4::tcp_proxy(
                "tls",
                port,
                Some(route),
                context,
                &mut problems,
            )],
            transport_socket: transport_socket.clone(),
            transport_socket_connect_timeout: transport_socket
                .is_some()
                .then(|| handshake(context))
                .flatten(),
            ..Default::default()
        };
        if let Err(reason) = chains.push(Kind::Tls, &hostnames, chain) {
            problems.push(Problem::new(
                name,
                format!("{reason}; the route is left out of {}", listener.name),
            ));
        }
    }
    chains.problems.append(&mut problems);
    chains.push_unless_taken(
        Kind::Tls,
        &listener.hostname,
        FilterChain {
            name: listener.name.clone(),
            filters: vec![l4::refuse("tls", port)],
            ..Default::default()
        },
    )
}

/// Returns the time that a client has to agree on TLS; none for ever.
fn handshake(context: &Context<'_>) -> Option<Duration> {
    match context
        .edge
        .tls_handshake_timeout_ms
        .unwrap_or(HANDSHAKE_MS)
    {
        0 => None,
        time => wrappers::milliseconds(time),
    }
}

/// A route table that is there and may be watched.
fn usable<'t>(route_table: &'t str, context: &Context<'t>) -> Result<Table<'t>, String> {
    let Some(bytes) = context.route_tables.get(route_table) else {
        return Err(format!(
            "its route table `{route_table}` is not in the snapshot"
        ));
    };
    Ok(
        if context.subscriptions.route_tables.is_inline(route_table) {
            Table::Inline(bytes)
        } else {
            Table::File(route_table)
        },
    )
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Plain,
    Tls,
}

/// The chains of a port. Envoy refuses a whole listener for two chains that match alike, or share a name.
#[derive(Default)]
struct Chains {
    ready: Vec<(Kind, FilterChain)>,
    matched: BTreeSet<(Kind, String)>,
    problems: Vec<Problem>,
}

impl Chains {
    /// Adds a chain for these server names; `*` and nothing stand for every other.
    fn push(
        &mut self,
        kind: Kind,
        hostnames: &[&str],
        mut chain: FilterChain,
    ) -> Result<(), String> {
        let mut server_names = Vec::new();
        let mut taken = None;
        for hostname in hostnames {
            let hostname = if *hostname == "*" { "" } else { hostname }.to_ascii_lowercase();
            if hostname
                .strip_prefix("*.")
                .unwrap_or(&hostname)
                .contains('*')
            {
                return Err(format!(
                    "server name `{hostname}`: `*` may only stand first"
                ));
            }
            if self.matched.insert((kind, hostname.clone())) {
                server_names.push(hostname);
            } else {
                taken = Some(hostname);
            }
        }
        if server_names.is_empty() {
            return Err(format!(
                "the port's server name `{}` is already taken by another",
                taken.unwrap_or_default()
            ));
        }
        // All others: said by matching nothing.
        if !server_names.iter().any(String::is_empty) {
            chain.filter_chain_match = Some(FilterChainMatch {
                server_names,
                ..Default::default()
            });
        }
        self.ready.push((kind, chain));
        Ok(())
    }

    /// Adds a chain for this server name, if no other has it.
    fn push_unless_taken(
        &mut self,
        kind: Kind,
        hostname: &str,
        chain: FilterChain,
    ) -> Result<(), String> {
        if self
            .matched
            .contains(&(kind, hostname.to_ascii_lowercase()))
        {
            return Ok(());
        }
        self.push(kind, &[hostname], chain)
    }

    /// Adds a chain that several listeners share; the first adds it.
    fn push_shared(&mut self, kind: Kind, chain: FilterChain) {
        if self.matched.insert((kind, String::new())) {
            self.ready.push((kind, chain));
        }
    }

    /// Where plain text and TLS share a port, plain text says so: both may match everything else.
    fn finish(self) -> Vec<FilterChain> {
        let mixed = self.ready.iter().any(|(kind, _)| *kind == Kind::Tls);
        self.ready
            .into_iter()
            .map(|(kind, mut chain)| {
                if mixed && kind == Kind::Plain {
                    chain.filter_chain_match = Some(FilterChainMatch {
                        transport_protocol: "raw_buffer".to_owned(),
                        ..Default::default()
                    });
                }
                chain
            })
            .collect()
    }
}
