//! Finds the listener for a connection. With TLS, the server name selects the listener.

use std::collections::BTreeMap;

use sesame_proto::schema::{
    L4Route, Listener, Port, Protocol, Snapshot, TlsTermination, Transport,
};

use super::bounds;
use super::compared::host_of;
use super::hosts;
use super::outcome::ExplainedListener;
use super::request::{ExplainRequest, UrlScheme};

pub(super) enum Chain<'s> {
    /// Name of the route table.
    Requests(&'s str),
    /// Forwards bytes, or closes the connection if the route is `None`.
    Connections(Option<&'s L4Route>),
}

pub(super) struct FoundChain<'s> {
    /// `None` if the port is plaintext and no hostname covers the request's host.
    pub(super) listener: Option<ExplainedListener>,
    pub(super) chain: Chain<'s>,
}

pub(super) struct RefusedConnection {
    pub(super) listener: Option<ExplainedListener>,
    pub(super) reason: String,
}

pub(super) fn find<'s>(
    snapshot: &'s Snapshot,
    request: &ExplainRequest,
) -> Result<FoundChain<'s>, RefusedConnection> {
    let number = u32::from(request.port);
    let Some(port) = over_tcp(snapshot).find(|port| port.port == number) else {
        return Err(refused(format!(
            "nothing listens on port {number}; {} has {}",
            snapshot.gateway,
            ports(snapshot)
        )));
    };
    match request.scheme {
        UrlScheme::Http => plain(port, request),
        UrlScheme::Https => over_tls(port, request),
    }
}

fn plain<'s>(
    port: &'s Port,
    request: &ExplainRequest,
) -> Result<FoundChain<'s>, RefusedConnection> {
    let of = |protocol: Protocol| {
        let listeners = port.listeners.iter();
        listeners.filter(move |listener| listener.protocol() == protocol)
    };
    if let Some(any) = of(Protocol::Http).next() {
        let host = host_of(&request.authority);
        // Listeners are sorted by hostname, most specific first.
        let listener = of(Protocol::Http).find(|it| hosts::covers(&it.hostname, &host));
        return Ok(FoundChain {
            listener: listener.map(|listener| {
                explained(listener, &format!("the most specific for host {host:?}"))
            }),
            chain: Chain::Requests(&any.route_table),
        });
    }
    match of(Protocol::RawTcp).next() {
        Some(listener) => Ok(FoundChain {
            listener: Some(explained(
                listener,
                "it accepts every connection to its port",
            )),
            chain: Chain::Connections(listener.l4_routes.first()),
        }),
        None => Err(refused(format!(
            "port {} expects TLS, but the connection is plaintext: use https",
            port.port
        ))),
    }
}

#[derive(Clone, Copy)]
struct NamedChain<'s> {
    listener: &'s Listener,
    /// `None` for HTTPS listeners, and for names without a route.
    route: Option<&'s L4Route>,
}

fn over_tls<'s>(
    port: &'s Port,
    request: &ExplainRequest,
) -> Result<FoundChain<'s>, RefusedConnection> {
    let chains = by_server_name(port);
    if chains.is_empty() {
        let raw = port.listeners.iter();
        let mut raw = raw.filter(|listener| listener.protocol() == Protocol::RawTcp);
        return match raw.next() {
            Some(listener) => Ok(FoundChain {
                listener: Some(explained(
                    listener,
                    "it accepts every connection to its port",
                )),
                chain: Chain::Connections(listener.l4_routes.first()),
            }),
            None => Err(refused(format!(
                "port {} expects plaintext, but the connection is TLS: use http",
                port.port
            ))),
        };
    }
    let sni = request.sni.clone().unwrap_or_default().to_ascii_lowercase();
    let Some(chain) = look_up(&chains, &sni) else {
        let names = bounds::join(chains.keys().map(|name| format!("{name:?}")), ", ");
        return Err(refused(format!(
            "no listener on port {} matches server name {sni:?}; expected {names}",
            port.port
        )));
    };
    let NamedChain { listener, route } = chain;
    let why = match sni.as_str() {
        "" => "the client sends no server name".to_owned(),
        sni => format!("the most specific for server name {sni:?}"),
    };
    let explained = explained(listener, &why);
    let tls = listener.tls.as_ref();
    let requires = tls.is_some_and(TlsTermination::requires_certificate);
    if requires && !request.client_certificate {
        return Err(RefusedConnection {
            listener: Some(explained),
            reason: "the listener requires a client certificate, and the client presents none: \
                the TLS handshake fails"
                .to_owned(),
        });
    }
    Ok(FoundChain {
        listener: Some(explained),
        chain: if listener.protocol() == Protocol::Https {
            Chain::Requests(&listener.route_table)
        } else {
            Chain::Connections(route)
        },
    })
}

/// Returns chains by lower-case server name; the empty name matches every name. The first entry for
/// a name wins.
fn by_server_name(port: &Port) -> BTreeMap<String, NamedChain<'_>> {
    let mut chains = BTreeMap::new();
    let mut add = |name: &str, chain| {
        let name = if name == "*" { "" } else { name };
        chains.entry(name.to_ascii_lowercase()).or_insert(chain);
    };
    for listener in &port.listeners {
        let alone = NamedChain {
            listener,
            route: None,
        };
        match listener.protocol() {
            Protocol::Https => add(&listener.hostname, alone),
            Protocol::Tls => {
                for route in &listener.l4_routes {
                    let chain = NamedChain {
                        listener,
                        route: Some(route),
                    };
                    match route.hostnames.as_slice() {
                        [] => add(&listener.hostname, chain),
                        names => names.iter().for_each(|name| add(name, chain)),
                    }
                }
                // Closes connections for names without a route, so a less specific listener never
                // receives them.
                add(&listener.hostname, alone);
            }
            Protocol::Http | Protocol::RawTcp | Protocol::RawUdp => {}
        }
    }
    chains
}

/// Tries the exact name, then wildcards from longest to shortest, then the empty name.
fn look_up<'s>(chains: &BTreeMap<String, NamedChain<'s>>, sni: &str) -> Option<NamedChain<'s>> {
    let wildcards = sni.char_indices().filter(|(at, c)| *at > 0 && *c == '.');
    let wildcards = wildcards.filter_map(|(at, _)| Some(format!("*{}", sni.get(at..)?)));
    std::iter::once(sni.to_owned())
        .chain(wildcards)
        .chain([String::new()])
        .find_map(|name| chains.get(&name).copied())
}

fn refused(reason: String) -> RefusedConnection {
    RefusedConnection {
        listener: None,
        reason,
    }
}

pub(super) fn listens(snapshot: &Snapshot, port: u16) -> bool {
    over_tcp(snapshot).any(|it| it.port == u32::from(port))
}

pub(super) fn ports(snapshot: &Snapshot) -> String {
    let ports: Vec<String> = over_tcp(snapshot).map(|it| it.port.to_string()).collect();
    if ports.is_empty() {
        return "none".to_owned();
    }
    bounds::join(ports.into_iter(), ", ")
}

fn over_tcp(snapshot: &Snapshot) -> impl Iterator<Item = &Port> {
    let ports = snapshot.ports.iter();
    ports.filter(|port| port.transport() == Transport::Tcp)
}

fn explained(listener: &Listener, reason: &str) -> ExplainedListener {
    let protocol = match listener.protocol() {
        Protocol::Http => "HTTP",
        Protocol::Https => "HTTPS",
        Protocol::Tls => "TLS",
        Protocol::RawTcp => "TCP",
        Protocol::RawUdp => "UDP",
    };
    ExplainedListener {
        name: listener.name.clone(),
        protocol: protocol.to_owned(),
        hostname: listener.hostname.clone(),
        reason: reason.to_owned(),
    }
}
