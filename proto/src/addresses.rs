//! Addresses that endpoints must not use, such as loopback, link-local, and cloud metadata services
//! that issue credentials.
//!
//! The agent checks endpoints again, because it does not trust snapshots. An IPv6 address that
//! embeds a rejected IPv4 address must also be rejected.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

/// A network whose addresses are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAddress {
    /// Network in CIDR notation.
    pub network: &'static str,
    /// Purpose of the network, such as loopback.
    pub what: &'static str,
    /// RFC or cloud documentation that defines the network.
    pub source: &'static str,
}

#[rustfmt::skip]
const TABLE: &[(&str, &str, &str)] = &[
    ("100.100.100.200/32", "Alibaba Cloud metadata", "Alibaba Cloud ECS: instance metadata"),
    ("168.63.129.16/32", "Azure's wire server", "Azure: IP address 168.63.129.16"),
    ("192.0.0.192/32", "Oracle Cloud metadata", "Oracle Cloud: classic instance metadata"),
    ("255.255.255.255/32", "broadcast", "RFC 919"),
    ("0.0.0.0/8", "this host", "RFC 1122 3.2.1.3"),
    ("127.0.0.0/8", "loopback", "RFC 1122 3.2.1.3"),
    ("169.254.0.0/16", "link-local, including most cloud metadata services", "RFC 3927"),
    ("224.0.0.0/4", "multicast", "RFC 5771"),
    ("::1/128", "loopback", "RFC 4291 2.5.3"),
    ("::/128", "unspecified", "RFC 4291 2.5.2"),
    ("fd00:42::42/128", "Scaleway metadata", "Scaleway: instance metadata"),
    ("fd20:ce::254/128", "Google Cloud metadata", "Google Cloud: metadata server over IPv6"),
    ("fd00:ec2::/32", "Amazon EC2 metadata (fd00:ec2::254) and EKS Pod credentials (fd00:ec2::23)", "Amazon EC2: instance metadata; EKS Pod Identity"),
    ("fe80::/10", "link-local", "RFC 4291 2.5.6"),
    ("fec0::/10", "deprecated site-local", "RFC 3879"),
    ("ff00::/8", "multicast", "RFC 4291 2.7"),
];

static NETWORKS: LazyLock<Vec<(IpAddr, u32, RefusedAddress)>> = LazyLock::new(|| {
    let read = |(network, what, source): &(&'static str, &'static str, &'static str)| {
        let (first, bits) = network.split_once('/')?;
        let refused = RefusedAddress {
            network,
            what,
            source,
        };
        Some((first.parse().ok()?, bits.parse().ok()?, refused))
    };
    #[expect(clippy::expect_used, reason = "proven")]
    let network = |row| read(row).expect("a test parses every network in the table");
    TABLE.iter().map(network).collect()
});

/// Returns the rejected network that contains the address, or `None` if endpoints may use the
/// address.
pub fn refused(ip: IpAddr) -> Option<&'static RefusedAddress> {
    let holds = |first: IpAddr, bits: u32, ip: IpAddr| match (first, ip) {
        (IpAddr::V4(first), IpAddr::V4(ip)) => {
            (u32::from(first) ^ u32::from(ip)).leading_zeros() >= bits
        }
        (IpAddr::V6(first), IpAddr::V6(ip)) => {
            (u128::from(first) ^ u128::from(ip)).leading_zeros() >= bits
        }
        _ => false,
    };
    let of = |ip: IpAddr| {
        let mut networks = NETWORKS.iter();
        let network = networks.find(|(first, bits, _)| holds(*first, *bits, ip));
        network.map(|(_, _, refused)| refused)
    };
    forms(ip).find_map(of)
}

/// Returns the address itself, and any IPv4 addresses that it might embed.
pub fn forms(ip: IpAddr) -> impl Iterator<Item = IpAddr> {
    let v6 = match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(v6),
    };
    let translated = v6.into_iter().flat_map(translated).map(IpAddr::from);
    std::iter::once(ip).chain(translated)
}

/// Network-specific prefixes (RFC 6052) cannot be recognized.
fn translated(ip: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let bits = u128::from(ip);
    let bytes = ip.octets();
    let at = |first: usize| {
        let mut v4 = [0; 4];
        // Skip byte 8, which is not part of the embedded address (RFC 6052 2.2).
        let places = (first..).filter(|place| first >= 9 || *place != 8);
        for (byte, place) in v4.iter_mut().zip(places) {
            *byte = bytes.get(place).copied().unwrap_or_default();
        }
        Ipv4Addr::from(v4)
    };
    // Ignore embedded addresses that start with 0. With a wrong prefix length, the extracted bytes
    // are mostly zeros and look like "this host".
    let whole = |v4: Ipv4Addr| (v4.octets()[0] != 0).then_some(v4);
    let local = |first: usize| {
        let begins = (bits ^ 0x0064_ff9b_0001 << 80).leading_zeros() >= 48;
        begins.then(|| whole(at(first))).flatten()
    };
    let begins =
        |prefix: u128, length: u32| (bits ^ prefix << (128 - length)).leading_zeros() >= length;
    let last = at(12);
    [
        // IPv4-mapped and IPv4-compatible (RFC 4291 2.5.5), and IPv4-translated (RFC 2765).
        begins(0xffff, 96).then_some(last),
        begins(0, 96).then_some(last),
        begins(0xffff_0000, 96).then_some(last),
        // NAT64: the well-known prefix, and the local-use prefix with any length (RFC 6052, RFC
        // 8215).
        begins(0x0064_ff9b_0000_0000_0000_0000, 96).then_some(last),
        local(6),
        local(7),
        local(9),
        local(12),
        // 6to4 (RFC 3056), ISATAP (RFC 5214), and Teredo, which obfuscates the client address (RFC
        // 4380).
        begins(0x2002, 16).then_some(at(2)),
        (bits >> 32 & 0xfdff_ffff == 0x5efe).then_some(last),
        begins(0x2001_0000, 32).then_some(Ipv4Addr::from(!u32::from(last))),
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    #[test]
    fn each_network_covers_exactly_its_addresses() {
        assert_eq!(NETWORKS.len(), TABLE.len());
        for (first, bits, refused) in &*NETWORKS {
            assert_eq!(super::refused(*first), Some(refused));
            let neighbor = match first {
                IpAddr::V4(ip) => (u32::from(*ip) ^ 1 << (32 - bits)).to_be_bytes().into(),
                IpAddr::V6(ip) => IpAddr::from((u128::from(*ip) ^ 1 << (128 - bits)).to_be_bytes()),
            };
            assert_ne!(super::refused(neighbor), Some(refused), "{neighbor}");
        }
    }

    #[test]
    fn non_machine_addresses_are_refused_in_every_form() {
        for (address, network) in [
            ("127.0.0.1", "127.0.0.0/8"),
            ("127.1.2.3", "127.0.0.0/8"),
            ("0.0.0.0", "0.0.0.0/8"),
            ("0.1.2.3", "0.0.0.0/8"),
            ("169.254.169.254", "169.254.0.0/16"),
            ("169.254.170.2", "169.254.0.0/16"),
            ("100.100.100.200", "100.100.100.200/32"),
            ("192.0.0.192", "192.0.0.192/32"),
            ("168.63.129.16", "168.63.129.16/32"),
            ("224.0.0.1", "224.0.0.0/4"),
            ("239.255.255.255", "224.0.0.0/4"),
            ("255.255.255.255", "255.255.255.255/32"),
            ("::1", "::1/128"),
            ("::", "::/128"),
            ("fe80::1", "fe80::/10"),
            ("fe80::a9fe:a9fe", "fe80::/10"),
            ("fec0::1", "fec0::/10"),
            ("ff02::1", "ff00::/8"),
            ("fd00:ec2::254", "fd00:ec2::/32"),
            ("fd00:ec2::23", "fd00:ec2::/32"),
            ("fd20:ce::254", "fd20:ce::254/128"),
            ("fd00:42::42", "fd00:42::42/128"),
            // IPv4-mapped, IPv4-compatible and IPv4-translated.
            ("::ffff:127.0.0.1", "127.0.0.0/8"),
            ("::ffff:169.254.169.254", "169.254.0.0/16"),
            ("::127.0.0.1", "127.0.0.0/8"),
            ("::ffff:0:127.0.0.1", "127.0.0.0/8"),
            // NAT64.
            ("64:ff9b::127.0.0.1", "127.0.0.0/8"),
            ("64:ff9b::a9fe:a9fe", "169.254.0.0/16"),
            ("64:ff9b::6464:64c8", "100.100.100.200/32"),
            ("64:ff9b:1::169.254.169.254", "169.254.0.0/16"),
            ("64:ff9b:1:a9fe:a9:fe00::", "169.254.0.0/16"),
            ("64:ff9b:1:a9:fe:a9fe::", "169.254.0.0/16"),
            ("64:ff9b:1:aa:a9:fea9:fe00:0", "169.254.0.0/16"),
            // 6to4, ISATAP, Teredo.
            ("2002:7f00:1::1", "127.0.0.0/8"),
            ("2002:a9fe:a9fe::1", "169.254.0.0/16"),
            ("2001:db8::5efe:127.0.0.1", "127.0.0.0/8"),
            ("2001:db8::200:5efe:127.0.0.1", "127.0.0.0/8"),
            ("2001:0:1234::80ff:fffe", "127.0.0.0/8"),
        ] {
            assert_eq!(
                refused(ip(address)).map(|refused| refused.network),
                Some(network),
                "{address}"
            );
        }
    }

    #[test]
    fn other_machines_are_not_refused_in_any_form() {
        for address in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.0.1",
            "192.0.0.191",
            "192.0.2.1",
            "100.64.0.1",
            "100.100.100.199",
            "168.63.129.17",
            "126.255.255.255",
            "128.0.0.1",
            "223.255.255.255",
            "240.0.0.1",
            "2001:db8::1",
            "2600:1f00::1",
            "fd00::1",
            "fd00:ec3::254",
            "fd20:ce::253",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1:a00:0:100:a00:1",
            "2002:a00:1::1",
            "2001:db8::5efe:a00:1",
        ] {
            assert_eq!(refused(ip(address)), None, "{address}");
        }
    }
}
