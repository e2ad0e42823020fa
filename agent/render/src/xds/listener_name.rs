//! Parses the names of Envoy's listeners, such as `tcp/127.0.0.1/80`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::Rendered;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use prost::Message as _;
use sesame_proto::schema::Transport;

/// Returns the addresses for the TCP listeners in a configuration.
pub fn tcp_addresses(rendered: &Rendered) -> BTreeSet<SocketAddr> {
    let all = rendered.listeners.iter();
    all.filter_map(|listener| match parse_listener_name(&listener.name)? {
        (Transport::Tcp, address) => Some(address),
        (Transport::Udp, _) => None,
    })
    .collect()
}

/// Returns the addresses for the HTTP/3 listeners in a configuration.
pub fn quic_addresses(rendered: &Rendered) -> BTreeSet<SocketAddr> {
    let all = rendered.listeners.iter();
    all.filter_map(|resource| {
        let (Transport::Udp, address) = parse_listener_name(&resource.name)? else {
            return None;
        };
        let listener = Listener::decode(&*resource.bytes).ok()?;
        listener.udp_listener_config?.quic_options?;
        Some(address)
    })
    .collect()
}

/// Parses a name such as `tcp/127.0.0.1/80`. Returns `None` if malformed.
pub fn parse_listener_name(listener: &str) -> Option<(Transport, SocketAddr)> {
    let mut parts = listener.split('/');
    let transport = match parts.next()? {
        "tcp" => Transport::Tcp,
        "udp" => Transport::Udp,
        _ => return None,
    };
    let address: IpAddr = parts.next()?.parse().ok()?;
    let port: u16 = parts.next()?.parse().ok()?;
    parts
        .next()
        .is_none()
        .then_some((transport, SocketAddr::new(address, port)))
}
