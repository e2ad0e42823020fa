//! The addresses of this host.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

/// What stands for all addresses: IPv4, and IPv6 where the host has it.
pub(super) fn all() -> Vec<IpAddr> {
    let mut all = vec![IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        all.push(Ipv6Addr::UNSPECIFIED.into());
    }
    all
}

/// Addresses under which others reach this host; loopback if there is no other.
pub(super) fn usable() -> Vec<IpAddr> {
    let mut found = BTreeSet::new();
    for interface in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let Some(address) = interface.address else {
            continue;
        };
        let ip = if let Some(v4) = address.as_sockaddr_in() {
            IpAddr::from(v4.ip())
        } else if let Some(v6) = address.as_sockaddr_in6() {
            IpAddr::from(v6.ip())
        } else {
            continue;
        };
        let link_local = match ip {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        if !ip.is_loopback() && !link_local && !ip.is_unspecified() {
            found.insert(ip);
        }
    }
    if found.is_empty() {
        found.insert(Ipv4Addr::LOCALHOST.into());
    }
    found.into_iter().collect()
}
