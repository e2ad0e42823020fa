//! Finds this host's addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use sesame_proto::network::Network;

use super::interfaces::Interfaces;

const MAX_POOL: usize = 256;

/// Returns the unspecified addresses: IPv4, and IPv6 if the host supports it.
pub(crate) fn all() -> Vec<IpAddr> {
    let mut all = vec![IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        all.push(Ipv6Addr::UNSPECIFIED.into());
    }
    all
}

/// Returns at most `MAX_POOL` addresses, sorted.
pub fn in_networks(networks: &[Network]) -> Vec<IpAddr> {
    let held = |ip: &IpAddr| networks.iter().any(|network| network.holds(*ip));
    let found: BTreeSet<IpAddr> = by_interface().map(|(_, ip)| ip).filter(held).collect();
    found.into_iter().take(MAX_POOL).collect()
}

pub(crate) fn every() -> Vec<IpAddr> {
    by_interface().map(|(_, ip)| ip).collect()
}

fn by_interface() -> impl Iterator<Item = (String, IpAddr)> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        let ip = v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())));
        Some((interface.interface_name, ip?))
    })
}

/// Prefers configured addresses, then addresses on interfaces that lead to other hosts, then any
/// global addresses, then loopback.
pub(crate) fn usable(configured: &[IpAddr]) -> Vec<IpAddr> {
    if !configured.is_empty() {
        return configured.to_vec();
    }
    let interfaces = Interfaces::read();
    let global = |ip: &IpAddr| {
        let link_local = match ip {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        !ip.is_loopback() && !link_local && !ip.is_unspecified()
    };
    let found: Vec<(String, IpAddr)> = by_interface().filter(|(_, ip)| global(ip)).collect();
    let outside = found
        .iter()
        .filter(|(name, _)| interfaces.lead_outside(name));
    let outside: BTreeSet<IpAddr> = outside.map(|(_, ip)| *ip).collect();
    if !outside.is_empty() {
        return outside.into_iter().collect();
    }
    let all: BTreeSet<IpAddr> = found.into_iter().map(|(_, ip)| ip).collect();
    if all.is_empty() {
        return vec![Ipv4Addr::LOCALHOST.into()];
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_yields_only_addresses_of_this_host() {
        let found = in_networks(&[
            "127.0.0.1/32".parse().unwrap(),
            "198.51.100.0/24".parse().unwrap(),
        ]);
        assert_eq!(found, [IpAddr::from(Ipv4Addr::LOCALHOST)]);
    }
}
