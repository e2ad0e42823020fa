//! Parses the names of Envoy's listeners, such as `tcp/127.0.0.1/80`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use sesame_proto::schema::Transport;
use sesame_render::Rendered;

/// Returns the addresses for the TCP listeners in a configuration.
pub fn tcp_addresses(rendered: &Rendered) -> BTreeSet<SocketAddr> {
    let all = rendered.listeners.iter();
    all.filter_map(|listener| match parse_listener_name(&listener.name)? {
        (Transport::Tcp, address) => Some(address),
        (Transport::Udp, _) => None,
    })
    .collect()
}

pub(crate) fn parse_listener_name(listener: &str) -> Option<(Transport, SocketAddr)> {
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
