//! The addresses of this host.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::str::FromStr;

/// Of a network, no more addresses than these are used.
const MAX_POOL: usize = 256;

/// What stands for all addresses: IPv4, and IPv6 where the host has it.
pub(super) fn all() -> Vec<IpAddr> {
    let mut all = vec![IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        all.push(Ipv6Addr::UNSPECIFIED.into());
    }
    all
}

/// An address and how many bits of it count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?}: expected a network such as 192.0.2.0/24 or 2001:db8::/64");
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = bits.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    fn holds(&self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                let rest = 32 - u32::from(self.bits);
                let (a, b) = (u32::from(network), u32::from(ip));
                (a ^ b).checked_shr(rest).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                let rest = 128 - u32::from(self.bits);
                let (a, b) = (u128::from(network), u128::from(ip));
                (a ^ b).checked_shr(rest).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// The addresses of this host that are in one of the networks, in order; as many as a host can have Gateways.
pub(crate) fn in_networks(networks: &[Network]) -> Vec<IpAddr> {
    let held = |ip: &IpAddr| networks.iter().any(|network| network.holds(*ip));
    let found: BTreeSet<IpAddr> = every().into_iter().filter(held).collect();
    found.into_iter().take(MAX_POOL).collect()
}

/// Every address that this host has now.
pub(super) fn every() -> Vec<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    });
    addresses.collect()
}

/// Addresses under which others reach this host; loopback if there is no other.
pub(super) fn usable() -> Vec<IpAddr> {
    let mut found = BTreeSet::new();
    for ip in every() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_what_shares_its_bits() {
        let holds = |network: &str, ip: &str| {
            let network: Network = network.parse().unwrap();
            network.holds(ip.parse().unwrap())
        };
        assert!(holds("192.0.2.0/24", "192.0.2.255"));
        assert!(!holds("192.0.2.0/24", "192.0.3.0"));
        assert!(holds("0.0.0.0/0", "203.0.113.1"));
        assert!(!holds("0.0.0.0/0", "::1"));
        assert!(holds("2001:db8::/64", "2001:db8::ffff"));
        assert!(!holds("2001:db8::1/128", "2001:db8::2"));
        for bad in ["192.0.2.0", "192.0.2.0/33", "::/129", "host/8", "/8"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_addresses_that_this_host_has_are_taken_from_a_network() {
        let found = in_networks(&[
            "127.0.0.1/32".parse().unwrap(),
            "198.51.100.0/24".parse().unwrap(),
        ]);
        assert_eq!(found, [IpAddr::from(Ipv4Addr::LOCALHOST)]);
    }
}
